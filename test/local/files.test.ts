import { createHash, randomBytes } from "node:crypto"
import * as Fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Box } from "./support.js"
import { becomes, modes, start } from "./support.js"

const names = ["报告 100%.csv", "a+b&c=#?.txt", "-rf", "new\nline", "quo\"te'\\", " ", "..hidden", "%2e%2e"]
const query = (...paths: ReadonlyArray<string>) => paths.map((path) => `path=${encodeURIComponent(path)}`).join("&")
const infoOf = (box: Box, path: string) =>
  Effect.map(box.request("GET", `/files/info?${query(path)}`), (answer) => ({
    status: answer.status,
    info: answer.json[path],
    code: answer.json.code
  }))
const sha = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

for (const mode of modes) {
  const open = Effect.flatMap(start({ mode }), (server) => server.box())

  describe(`files (${mode})`, () => {
    it.scopedLive("carries any bytes under any name", () =>
      Effect.gen(function* () {
        const box = yield* open
        const bytes = Uint8Array.from({ length: 256 }, (_, index) => index)
        for (const name of names) {
          const path = `/workspace/dir/${name}`
          assert.strictEqual((yield* box.upload(path, bytes)).status, 200, name)
          const got = yield* box.download(path)
          assert.strictEqual(got.status, 200)
          assert.deepStrictEqual(got.bytes, bytes)
          assert.strictEqual(got.headers.get("content-length"), "256")
          assert.strictEqual(got.headers.get("content-type"), "application/octet-stream")
          assert.match(got.headers.get("content-disposition") ?? "", /^attachment; filename="/)
        }
        const listed = (yield* box.request("GET", `/directories/list?${query("/workspace/dir")}`)).json
        assert.sameMembers(
          listed.map((entry: { path: string }) => entry.path),
          names.map((name) => `/workspace/dir/${name}`)
        )
        yield* box.upload("/workspace/empty", new Uint8Array(0))
        assert.strictEqual((yield* box.download("/workspace/empty")).bytes.length, 0)
        assert.strictEqual((yield* box.download("/workspace/none")).status, 404)
        assert.strictEqual((yield* box.download("/workspace")).status, 400)
        assert.strictEqual(
          (yield* box.request("DELETE", `/files?${query(...names.map((name) => `/workspace/dir/${name}`))}`)).status,
          200
        )
        assert.deepStrictEqual((yield* box.request("GET", `/directories/list?${query("/workspace/dir")}`)).json, [])
      })
    )

    it.scopedLive("streams large files both ways", () =>
      Effect.gen(function* () {
        const box = yield* open
        const bytes = randomBytes(50_000_000)
        assert.strictEqual((yield* box.upload("/workspace/big", bytes)).status, 200)
        assert.strictEqual(yield* box.text("sha256sum <big", { cwd: "/workspace" }), `${sha(bytes)}  -\n`)
        const got = yield* box.download("/workspace/big")
        assert.strictEqual(sha(got.bytes), sha(bytes))
      })
    )

    it.scopedLive("overwrites, keeps the inode, takes several files at once", () =>
      Effect.gen(function* () {
        const box = yield* open
        yield* box.upload("/workspace/a", "a longer text")
        yield* box.text("ln a b", { cwd: "/workspace" })
        yield* box.upload("/workspace/a", "short")
        assert.strictEqual((yield* box.download("/workspace/b")).text, "short")
        const form = new FormData()
        for (const name of ["x", "y"]) {
          form.append("metadata", new Blob([JSON.stringify({ path: `/workspace/many/${name}` })]), "metadata")
          form.append("file", new Blob([name]), name)
        }
        assert.strictEqual((yield* box.request("POST", "/files/upload", { body: form })).status, 200)
        assert.strictEqual((yield* box.download("/workspace/many/y")).text, "y")
      })
    )

    it.scopedLive("refuses malformed uploads", () =>
      Effect.gen(function* () {
        const box = yield* open
        const post = (parts: ReadonlyArray<readonly [string, string, boolean?]>) => {
          const form = new FormData()
          for (const [name, value, file] of parts) {
            if (file === false) form.append(name, value)
            else form.append(name, new Blob([value]), name)
          }
          return Effect.map(box.request("POST", "/files/upload", { body: form }), (answer) => answer.status)
        }
        assert.strictEqual(yield* post([["file", "x"]]), 400)
        assert.strictEqual(
          yield* post([
            ["metadata", "{}"],
            ["file", "x"]
          ]),
          400
        )
        assert.strictEqual(
          yield* post([
            ["metadata", "no json"],
            ["file", "x"]
          ]),
          400
        )
        assert.strictEqual(yield* post([["metadata", JSON.stringify({ path: "/workspace/q" })]]), 400)
        assert.strictEqual(yield* post([["other", "x"]]), 400)
        assert.strictEqual((yield* box.request("POST", "/files/upload", { body: "x" })).status, 400)
        const cut = '--b\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n{'
        const raw = (body: string) =>
          box.request("POST", "/files/upload", { body, headers: { "content-type": "multipart/form-data; boundary=b" } })
        assert.strictEqual((yield* raw(cut)).status, 400)
        assert.strictEqual((yield* raw("")).status, 400)
        // As plain fields they are understood too.
        assert.strictEqual(
          yield* post([
            ["metadata", JSON.stringify({ path: "/workspace/field" }), false],
            ["file", "text", false]
          ]),
          200
        )
        assert.strictEqual((yield* box.download("/workspace/field")).text, "text")
      })
    )

    it.scopedLive("answers ranges", () =>
      Effect.gen(function* () {
        const box = yield* open
        yield* box.upload("/workspace/r", "0123456789")
        const range = (header: string) =>
          Effect.map(box.download("/workspace/r", { Range: header }), (answer) => [
            answer.status,
            answer.status === 416 ? "" : answer.text,
            answer.headers.get("content-range")
          ])
        assert.deepStrictEqual(yield* range("bytes=2-4"), [206, "234", "bytes 2-4/10"])
        assert.deepStrictEqual(yield* range("bytes=7-"), [206, "789", "bytes 7-9/10"])
        assert.deepStrictEqual(yield* range("bytes=-3"), [206, "789", "bytes 7-9/10"])
        assert.deepStrictEqual(yield* range("bytes=5-100"), [206, "56789", "bytes 5-9/10"])
        assert.deepStrictEqual(yield* range("bytes=10-"), [416, "", "bytes */10"])
        assert.deepStrictEqual(yield* range("bytes=4-2"), [200, "0123456789", null])
        assert.deepStrictEqual(yield* range("lines=1-2"), [200, "0123456789", null])
      })
    )

    it.scopedLive("tells and changes permissions, modes as digits", () =>
      Effect.gen(function* () {
        const box = yield* open
        yield* box.upload("/workspace/m", "x", { mode: 755 })
        const { info } = yield* infoOf(box, "/workspace/m")
        assert.deepInclude(info, { path: "/workspace/m", type: "file", size: 1, mode: 755 })
        assert.match(info.modified_at, /^\d{4}-\d\d-\d\dT.*Z$/)
        assert.match(info.created_at, /^\d{4}-\d\d-\d\dT.*Z$/)
        const permit = (body: object) =>
          Effect.map(box.request("POST", "/files/permissions", { body }), (answer) => answer.status)
        assert.strictEqual(yield* permit({ "/workspace/m": { mode: 4750 } }), 200)
        assert.strictEqual((yield* infoOf(box, "/workspace/m")).info.mode, 4750)
        assert.strictEqual(yield* permit({ "/workspace/m": { mode: "640" } }), 200)
        assert.strictEqual((yield* infoOf(box, "/workspace/m")).info.mode, 640)
        assert.strictEqual(yield* permit({ "/workspace/m": { mode: 789 } }), 400)
        assert.strictEqual(yield* permit({ "/workspace/none": { mode: 644 } }), 404)
        if (process.getuid?.() === 0) {
          assert.strictEqual(yield* permit({ "/workspace/m": { mode: 600, owner: "nobody", group: "daemon" } }), 200)
          assert.deepInclude((yield* infoOf(box, "/workspace/m")).info, { owner: "nobody", group: "daemon", mode: 600 })
          assert.strictEqual(yield* permit({ "/workspace/m": { mode: 600, owner: "no-such-user" } }), 400)
        }
        yield* box.upload("/workspace/default", "x")
        assert.strictEqual((yield* infoOf(box, "/workspace/default")).info.mode, 644)
      })
    )

    it.scopedLive("makes, lists, moves and removes directories", () =>
      Effect.gen(function* () {
        const box = yield* open
        const post = (path: string, body: unknown) =>
          Effect.map(box.request("POST", path, { body }), (answer) => answer.status)
        assert.strictEqual(
          yield* post("/directories", { "/workspace/d/e/f": { mode: 700 }, "/workspace/d/b": { mode: 755 } }),
          200
        )
        assert.strictEqual((yield* infoOf(box, "/workspace/d/e/f")).info.mode, 700)
        assert.strictEqual(yield* post("/directories", { "/workspace/d": { mode: 755 } }), 200)
        yield* box.upload("/workspace/d/a", "1")
        yield* box.text("ln -s e link", { cwd: "/workspace/d" })
        const list = (path: string, depth = "") =>
          Effect.map(box.request("GET", `/directories/list?${query(path)}${depth}`), (answer) =>
            answer.status === 200
              ? answer.json.map(
                  (entry: { path: string; type: string }) => `${entry.path.replace("/workspace/d/", "")}:${entry.type}`
                )
              : answer.status
          )
        assert.deepStrictEqual(yield* list("/workspace/d"), ["a:file", "b:directory", "e:directory", "link:symlink"])
        assert.deepStrictEqual(yield* list("/workspace/d", "&depth=5"), [
          "a:file",
          "b:directory",
          "e:directory",
          "e/f:directory",
          "link:symlink"
        ])
        assert.deepStrictEqual(yield* list("/workspace/d", "&depth=0"), [])
        assert.strictEqual(yield* list("/workspace/d/link"), 400)
        assert.strictEqual(yield* list("/workspace/d/a"), 400)
        assert.strictEqual(yield* list("/workspace/none"), 404)
        assert.strictEqual(yield* post("/files/mv", [{ src: "/workspace/d/a", dest: "/workspace/d/b/z" }]), 200)
        assert.strictEqual((yield* box.download("/workspace/d/b/z")).text, "1")
        assert.strictEqual(yield* post("/files/mv", [{ src: "/workspace/d", dest: "/tmp/moved" }]), 200)
        assert.strictEqual((yield* box.download("/tmp/moved/b/z")).text, "1")
        assert.strictEqual(yield* post("/files/mv", [{ src: "/workspace/none", dest: "/workspace/x" }]), 404)
        assert.strictEqual(yield* post("/files/mv", [{ src: "/tmp/moved/b/z", dest: "/workspace/no/where" }]), 404)
        assert.strictEqual((yield* box.request("DELETE", `/files?${query("/tmp/moved")}`)).status, 400)
        assert.strictEqual((yield* box.request("DELETE", `/directories?${query("/tmp/moved")}`)).status, 200)
        assert.strictEqual((yield* infoOf(box, "/tmp/moved")).status, 404)
        assert.strictEqual((yield* box.request("DELETE", `/directories?${query("/")}`)).status, 400)
      })
    )

    it.scopedLive("finds files", () =>
      Effect.gen(function* () {
        const box = yield* open
        for (const path of ["a.txt", "b.md", "s/c.txt", "s/t/d.txt", "s/[x].txt"])
          yield* box.upload(`/workspace/find/${path}`, "x")
        const find = (pattern?: string) =>
          Effect.map(
            box.request(
              "GET",
              `/files/search?${query("/workspace/find")}${pattern === undefined ? "" : `&pattern=${encodeURIComponent(pattern)}`}`
            ),
            (answer) => answer.json.map((entry: { path: string }) => entry.path.replace("/workspace/find/", ""))
          )
        assert.sameMembers(yield* find(), ["a.txt", "b.md", "s/c.txt", "s/t/d.txt", "s/[x].txt"])
        assert.sameMembers(yield* find("*.txt"), ["a.txt", "s/c.txt", "s/t/d.txt", "s/[x].txt"])
        assert.sameMembers(yield* find("s/*.txt"), ["s/c.txt", "s/[x].txt"])
        assert.sameMembers(yield* find("**/d.*"), ["s/t/d.txt"])
        assert.sameMembers(yield* find("*.{md,rs}"), ["b.md"])
        assert.sameMembers(yield* find("\\[x\\].txt"), ["s/[x].txt"])
        assert.sameMembers(yield* find("[a-b].*"), ["a.txt", "b.md"])
      })
    )

    it.scopedLive("replaces text and counts", () =>
      Effect.gen(function* () {
        const box = yield* open
        yield* box.upload("/workspace/t", Uint8Array.from([0xff, ...Buffer.from("$1 é é $&")]), { mode: 640 })
        const replace = (path: string, body: object) => box.request("POST", `/files/replace${path}`, { body })
        const counted = yield* replace("?verbose=true", { "/workspace/t": { old: "é", new: "$&x" } })
        assert.deepStrictEqual(counted.json, { "/workspace/t": { replacedCount: 2 } })
        assert.deepStrictEqual(
          (yield* box.download("/workspace/t")).bytes,
          Uint8Array.from([0xff, ...Buffer.from("$1 $&x $&x $&")])
        )
        assert.strictEqual((yield* infoOf(box, "/workspace/t")).info.mode, 640)
        assert.strictEqual(
          (yield* replace("?verbose=true", { "/workspace/t": { old: "none", new: "" } })).json["/workspace/t"]
            .replacedCount,
          0
        )
        const quiet = yield* replace("", { "/workspace/t": { old: "x", new: "y" } })
        assert.deepStrictEqual([quiet.status, quiet.text], [200, ""])
        assert.strictEqual((yield* replace("", { "/workspace/t": { old: "", new: "y" } })).status, 400)
        assert.strictEqual((yield* replace("", { "/workspace/none": { old: "a", new: "y" } })).status, 404)
      })
    )

    it.scopedLive("takes the paths that commands print", () =>
      Effect.gen(function* () {
        const box = yield* open
        const home = (yield* box.text("echo hi >$HOME/file; ln -s $HOME/file $HOME/link; echo $HOME")).trim()
        assert.strictEqual((yield* box.download(`${home}/file`)).text, "hi\n")
        assert.strictEqual((yield* box.download(`${home}/link`)).text, "hi\n")
        yield* box.upload("relative", "r")
        assert.strictEqual(yield* box.text("cat relative"), "r\n")
      })
    )
  })

  describe(`the sandbox's root (${mode})`, () => {
    const outside = Effect.acquireRelease(
      Effect.sync(() => {
        const directory = Fs.mkdtempSync("/var/tmp/sandglass-outside-")
        Fs.writeFileSync(`${directory}/secret`, "outside")
        return directory
      }),
      (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
    )

    const root = process.getuid?.() === 0
    /** Whether what is read says where it was read: a user namespace cannot change the copy of what is not the user's. */
    const tells = mode === "plain" || root
    /** With namespaces the same names exist inside, as copies: what is read there must be the sandbox's own version. */
    const shadow = (box: Box, target: string) =>
      mode === "namespaces" && root ? Effect.asVoid(box.text(`echo changed >${target}/secret`)) : Effect.void

    it.scopedLive("is not left by any path or link", () =>
      Effect.gen(function* () {
        const box = yield* open
        const target = yield* outside
        yield* shadow(box, target)
        const up = "../".repeat(30)
        yield* box.text(
          `ln -s ${target} abs; ln -s ${up.slice(0, -1)}${target} rel; ln -s ${target}/new dangling; ln -s / slash; mkdir -p in; ln -s ../../../../../.. in/up; ln -s loop loop`,
          { cwd: "/workspace" }
        )
        const attacks = [
          `${up}${target.slice(1)}`,
          `/${up}${target.slice(1)}`,
          `/workspace/${up}${target.slice(1)}`,
          "/workspace/abs",
          "/workspace/rel",
          `/workspace/slash${target}`,
          `/workspace/in/up${target}`,
          `/workspace/abs/../../../..${target}`,
          `/workspace/in/up/../..${target}`
        ]
        for (const attack of attacks) {
          yield* box.upload(`${attack}/secret`, "overwritten")
          yield* box.upload(`${attack}/created`, "x")
          yield* box.request("POST", "/directories", { body: { [`${attack}/dir`]: { mode: 777 } } })
          yield* box.request("POST", "/files/permissions", { body: { [`${attack}/secret`]: { mode: 777 } } })
          yield* box.request("POST", "/files/replace", {
            body: { [`${attack}/secret`]: { old: "outside", new: "inside" } }
          })
          yield* box.request("POST", "/files/mv", { body: [{ src: `${attack}/secret`, dest: "/workspace/taken" }] })
          yield* box.request("POST", "/files/mv", {
            body: [
              { src: "/workspace/in", dest: `${attack}/in` },
              { src: `${attack}/in`, dest: "/workspace/in" }
            ]
          })
          yield* box.request("DELETE", `/files?${query(`${attack}/secret`)}`)
          yield* box.request("DELETE", `/directories?${query(attack)}`)
          if (tells) assert.notStrictEqual((yield* box.download(`${attack}/secret`)).text, "outside", attack)
        }
        yield* box.upload("/workspace/dangling", "x")
        yield* box.request("POST", "/files/upload", { body: "" })
        assert.strictEqual((yield* box.download("/workspace/loop")).status, 400)
        assert.strictEqual((yield* box.request("GET", `/files/info?${query("/workspace/a\0b")}`)).status, 400)
        assert.deepStrictEqual(Fs.readdirSync(target), ["secret"])
        assert.strictEqual(Fs.readFileSync(`${target}/secret`, "utf8"), "outside")
        assert.strictEqual(Fs.statSync(`${target}/secret`).mode & 0o777, 0o644)
      })
    )

    it.scopedLive("is not left by removing a tree with links in it, nor by listing or finding", () =>
      Effect.gen(function* () {
        const box = yield* open
        const target = yield* outside
        yield* shadow(box, target)
        yield* box.text(
          `mkdir -p tree/sub; ln -s ${target} tree/sub/abs; ln -s ${"../".repeat(20)}${target} tree/rel`,
          { cwd: "/workspace" }
        )
        const found = yield* box.request(
          "GET",
          `/files/search?${query("/workspace/tree")}&pattern=${encodeURIComponent("**")}`
        )
        assert.notInclude(found.text, "secret")
        assert.notInclude(
          (yield* box.request("GET", `/directories/list?${query("/workspace/tree")}&depth=9`)).text,
          "secret"
        )
        assert.strictEqual((yield* box.request("DELETE", `/directories?${query("/workspace/tree")}`)).status, 200)
        assert.strictEqual(Fs.readFileSync(`${target}/secret`, "utf8"), "outside")
      })
    )

    it.scopedLive("is not left while links are swapped under a walk", () =>
      Effect.gen(function* () {
        const box = yield* open
        const target = yield* outside
        yield* shadow(box, target)
        // `swap` is a directory one moment and a link to the outside the next.
        const running = yield* box.start(
          `cd ..; mkdir -p real; echo inside >real/secret; rm -rf swap; while true; do ln -sfn ${target} swap; rm -f swap; mv real swap; mv swap real; done 2>/dev/null`,
          { cwd: "/workspace" }
        )
        for (let i = 0; i < 150; i++) {
          const [got] = yield* Effect.all(
            [
              box.download("/swap/secret"),
              box.upload("/swap/created", "x"),
              box.request("DELETE", `/directories?${query("/swap")}`)
            ],
            { concurrency: 3 }
          )
          if (tells && got.status === 200) assert.notStrictEqual(got.text, "outside")
        }
        yield* box.request("DELETE", `/command?id=${running.id}`)
        assert.deepStrictEqual(Fs.readdirSync(target), ["secret"])
        assert.strictEqual(Fs.readFileSync(`${target}/secret`, "utf8"), "outside")
      })
    )

    it.scopedLive("does not hang on pipes and devices", () =>
      Effect.gen(function* () {
        const box = yield* open
        yield* box.text("mkfifo fifo", { cwd: "/workspace" })
        assert.strictEqual((yield* box.download("/workspace/fifo")).status, 400)
        assert.strictEqual((yield* box.upload("/workspace/fifo", "x")).status, 400)
        assert.strictEqual((yield* infoOf(box, "/workspace/fifo")).info.type, "other")
      })
    )

    if (mode === "namespaces") {
      it.scopedLive("resolves links as the sandbox's own processes do", () =>
        Effect.gen(function* () {
          const box = yield* open
          yield* box.text(
            "mkdir -p /opt/real && echo inside >/opt/real/f && ln -sfn /opt/real /etc/through && ln -sfn ../opt/real /rel"
          )
          assert.strictEqual((yield* box.download("/etc/through/f")).text, "inside\n")
          assert.strictEqual((yield* box.download("/rel/f")).text, "inside\n")
          assert.strictEqual((yield* box.upload("/etc/through/g", "new")).status, 200)
          assert.strictEqual(yield* box.text("cat /opt/real/g"), "new\n")
          assert.isFalse(Fs.existsSync("/opt/real"))
          assert.isFalse(Fs.existsSync("/etc/through"))
        })
      )
    }

    it.scopedLive("lets go of every descriptor", () =>
      Effect.gen(function* () {
        const box = yield* open
        const count = () => Fs.readdirSync("/proc/self/fd").length
        const round = Effect.gen(function* () {
          yield* box.upload("/workspace/a/b/c", "x")
          yield* box.download("/workspace/a/b/c")
          yield* box.download("/workspace/none/x")
          yield* infoOf(box, "/workspace/a/../a/b/c/")
          yield* box.request("GET", `/directories/list?${query("/workspace")}&depth=9`)
          yield* box.request("POST", "/files/mv", { body: [{ src: "/workspace/a", dest: "/tmp/a" }] })
          yield* box.request("DELETE", `/directories?${query("/tmp/a")}`)
          yield* box.run("true")
        })
        yield* round
        const before = count()
        for (let i = 0; i < 20; i++) yield* round
        yield* becomes(() => count() <= before + 8)
      })
    )
  })
}
