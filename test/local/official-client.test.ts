import { ConnectionConfig, Sandbox, SandboxApiException, SandboxManager } from "@alibaba-group/opensandbox"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Server } from "./support.js"
import { modes, start } from "./support.js"

/** The official client works against the server unchanged. */
for (const mode of modes) {
  describe(`the official client (${mode})`, () => {
    const use = (body: (connectionConfig: ConnectionConfig, server: Server) => Promise<void>, useServerProxy = false) =>
      Effect.flatMap(start({ mode }), (server) =>
        Effect.promise(() =>
          body(
            new ConnectionConfig({ domain: server.url.replace("http://", ""), apiKey: server.apiKey, useServerProxy }),
            server
          )
        )
      )

    it.scopedLive("creates, runs commands, kills", () =>
      use(async (connectionConfig) => {
        const sandbox = await Sandbox.create({
          connectionConfig,
          image: "node:22",
          env: { GREETING: "hello" },
          metadata: { team: "a" }
        })
        try {
          const done = await sandbox.commands.run("echo $GREETING; echo; echo oops >&2")
          assert.strictEqual(done.exitCode, 0)
          assert.deepStrictEqual(
            done.logs.stdout.map((line) => line.text),
            ["hello", "\n"]
          )
          assert.deepStrictEqual(
            done.logs.stderr.map((line) => line.text),
            ["oops"]
          )
          assert.isString(done.id)
          const failed = await sandbox.commands.run("exit 5")
          assert.strictEqual(failed.exitCode, 5)
          const late = await sandbox.commands.run("sleep 10", { timeoutSeconds: 0.2 })
          assert.strictEqual(late.exitCode, -1)
          const background = await sandbox.commands.run("echo from behind; exit 4", { background: true })
          let status = await sandbox.commands.getCommandStatus(background.id ?? "")
          while (status.running === true) status = await sandbox.commands.getCommandStatus(background.id ?? "")
          assert.strictEqual(status.exitCode, 4)
          assert.strictEqual(
            (await sandbox.commands.getBackgroundCommandLogs(background.id ?? "")).content,
            "from behind\n"
          )
          const info = await sandbox.getInfo()
          assert.strictEqual(info.status.state, "Running")
          assert.deepStrictEqual(info.metadata, { team: "a" })
          assert.isAbove((await sandbox.getMetrics()).cpuCount, 0)
        } finally {
          await sandbox.kill()
        }
        const error = await sandbox.getInfo().then(
          () => undefined,
          (cause: unknown) => cause
        )
        assert.instanceOf(error, SandboxApiException)
        await sandbox.close()
      })
    )

    it.scopedLive("interrupts", () =>
      use(async (connectionConfig) => {
        const sandbox = await Sandbox.create({ connectionConfig, image: "node:22" })
        let id = ""
        const done = await sandbox.commands.run(
          "echo started; sleep 300 & sleep 300",
          {},
          {
            onInit: (init) => {
              id = init.id
            },
            onStdout: async () => {
              await sandbox.commands.interrupt(id)
            }
          }
        )
        assert.isDefined(done.error)
        await sandbox.kill()
        await sandbox.close()
      })
    )

    it.scopedLive("works with files", () =>
      use(async (connectionConfig) => {
        const sandbox = await Sandbox.create({ connectionConfig, image: "node:22" })
        const path = "/workspace/d/报告 100%.csv"
        await sandbox.files.writeFiles([
          { path, data: "a,b\n", mode: 640 },
          { path: "/workspace/d/bin", data: Uint8Array.from([0, 255]) }
        ])
        assert.strictEqual(await sandbox.files.readFile(path), "a,b\n")
        assert.deepStrictEqual(await sandbox.files.readBytes("/workspace/d/bin"), Uint8Array.from([0, 255]))
        assert.strictEqual(await sandbox.files.readFile(path, { range: "bytes=2-" }), "b\n")
        assert.strictEqual((await sandbox.files.getFileInfo([path]))[path]?.mode, 640)
        await sandbox.files.createDirectories([{ path: "/workspace/new", mode: 755 }])
        await sandbox.files.moveFiles([{ src: path, dest: "/workspace/new/b" }])
        await sandbox.files.replaceContents([{ path: "/workspace/new/b", oldContent: "a", newContent: "z" }])
        assert.strictEqual(await sandbox.files.readFile("/workspace/new/b"), "z,b\n")
        await sandbox.files.setPermissions([{ path: "/workspace/new/b", mode: 600 }])
        assert.deepStrictEqual(
          (await sandbox.files.search({ path: "/workspace", pattern: "b*" })).map((entry) => entry.path).sort(),
          ["/workspace/d/bin", "/workspace/new/b"]
        )
        assert.deepStrictEqual(
          (await sandbox.files.listDirectory({ path: "/workspace" })).map((entry) => entry.path),
          ["/workspace/d", "/workspace/new"]
        )
        await sandbox.files.deleteFiles(["/workspace/new/b"])
        await sandbox.files.deleteDirectories(["/workspace/d", "/workspace/new"])
        assert.deepStrictEqual(await sandbox.files.listDirectory({ path: "/workspace" }), [])
        await sandbox.kill()
        await sandbox.close()
      })
    )

    it.scopedLive("pauses, resumes, renews, through the server's proxy too", () =>
      use(async (connectionConfig) => {
        const sandbox = await Sandbox.create({ connectionConfig, image: "node:22", timeoutSeconds: 120 })
        await sandbox.commands.run("echo kept >f")
        await sandbox.pause()
        assert.strictEqual((await sandbox.getInfo()).status.state, "Paused")
        const resumed = await sandbox.resume()
        assert.deepStrictEqual(
          (await resumed.commands.run("cat f")).logs.stdout.map((line) => line.text),
          ["kept"]
        )
        await resumed.renew(600)
        await resumed.patchMetadata({ a: "b" })
        assert.deepStrictEqual((await resumed.getInfo()).metadata, { a: "b" })
        await resumed.kill()
        await resumed.close()
        await sandbox.close()
      }, true)
    )

    it.scopedLive("runs sessions", () =>
      use(async (connectionConfig) => {
        const sandbox = await Sandbox.create({ connectionConfig, image: "node:22" })
        const { commands } = sandbox
        const id = await commands.createSession({ workingDirectory: "/workspace" })
        assert.strictEqual((await commands.runInSession(id, "mkdir d; cd d; export X=1")).exitCode, 0)
        const second = await commands.runInSession(id, "echo $X; echo; basename $PWD >&2; exit 4")
        assert.deepStrictEqual(
          second.logs.stdout.map((line) => line.text),
          ["1", "d"]
        )
        assert.strictEqual(second.exitCode, 4)
        assert.strictEqual((await commands.runInSession(id, "sleep 10", { timeoutSeconds: 0.2 })).exitCode, -1)
        await commands.deleteSession(id)
        const gone = await commands.runInSession(id, "true").then(
          () => undefined,
          (cause: unknown) => cause
        )
        assert.instanceOf(gone, SandboxApiException)
        await sandbox.kill()
        await sandbox.close()
      })
    )

    it.scopedLive("talks to the egress sidecar", () =>
      use(async (connectionConfig) => {
        const sandbox = await Sandbox.create({
          connectionConfig,
          image: "node:22",
          networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] },
          credentialProxy: { enabled: true }
        })
        await sandbox.patchEgressRules([{ action: "allow", target: "*.example.com" }])
        await sandbox.deleteEgressRules(["pypi.org"])
        assert.deepStrictEqual(await sandbox.getEgressPolicy(), {
          defaultAction: "deny",
          egress: [{ action: "allow", target: "*.example.com" }]
        })
        const { credentialVault } = sandbox
        const made = await credentialVault.create({
          credentials: [{ name: "token", source: { type: "inline", value: "secret" } }],
          bindings: [
            {
              name: "api",
              match: { hosts: ["api.example.com"] },
              auth: { type: "bearer", credential: "token" }
            }
          ]
        })
        assert.strictEqual(made.revision, 1)
        const changed = await credentialVault.patch({ expectedRevision: 1, bindings: { delete: ["api"] } })
        assert.deepStrictEqual(changed.bindings, [])
        assert.strictEqual((await credentialVault.get()).revision, 2)
        await credentialVault.delete()
        await sandbox.kill()
        await sandbox.close()
      })
    )

    it.scopedLive("takes snapshots and restores them", () =>
      use(async (connectionConfig) => {
        const manager = SandboxManager.create({ connectionConfig })
        const sandbox = await Sandbox.create({ connectionConfig, image: "node:22" })
        await sandbox.commands.run("echo kept >f")
        const snapshot = await manager.createSnapshot(sandbox.id, { name: "first" })
        let { status } = await manager.getSnapshot(snapshot.id)
        while (status.state === "Creating") status = (await manager.getSnapshot(snapshot.id)).status
        assert.strictEqual(status.state, "Ready")
        assert.strictEqual((await manager.listSnapshots({ sandboxId: sandbox.id })).items[0]?.name, "first")
        await manager.killSandbox(sandbox.id)
        const restored = await Sandbox.create({ connectionConfig, snapshotId: snapshot.id })
        assert.deepStrictEqual(
          (await restored.commands.run("cat f")).logs.stdout.map((line) => line.text),
          ["kept"]
        )
        assert.strictEqual((await manager.listSandboxInfos({ states: ["Running"] })).items.length, 1)
        await manager.deleteSnapshot(snapshot.id)
        await restored.kill()
        for (const each of [sandbox, restored, manager]) await each.close()
      })
    )
  })
}
