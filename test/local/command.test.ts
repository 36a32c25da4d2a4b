import * as Fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { becomes, eventually, fromImage, modes, nap, outputOf, processesWith, start } from "./support.js"

for (const mode of modes) {
  describe(`commands (${mode})`, () => {
    it.scopedLive("streams events in execd's framing", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const answer = yield* box.request("POST", "/command", { body: { command: "echo one; echo; echo two" } })
        assert.strictEqual(answer.headers.get("content-type"), "text/event-stream")
        const frames = answer.text.split("\n\n")
        assert.strictEqual(frames.pop(), "")
        assert.deepStrictEqual(
          frames.map((frame) => JSON.parse(frame)).map(({ text, type }) => [type, text]),
          [
            ["init", JSON.parse(frames[0] ?? "").text],
            ["stdout", "one"],
            ["stdout", "\n"],
            ["stdout", "two"],
            ["execution_complete", undefined]
          ]
        )
        assert.isNumber(JSON.parse(frames.at(-1) ?? "").execution_time)
      })
    )

    it.scopedLive("tells lines, whatever ends them", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const lines = (command: string) => Effect.map(box.run(command), (all) => outputOf(all))
        assert.deepStrictEqual(yield* lines("printf 'a\\n\\nb\\n'"), ["a", "\n", "b"])
        assert.deepStrictEqual(yield* lines("printf 'a\\rb\\r\\nc'"), ["a", "b", "c"])
        assert.deepStrictEqual(yield* lines("printf 'a\\r'; sleep 0.05; printf '\\nb'"), ["a", "b"])
        assert.deepStrictEqual(yield* lines("printf '\"\\\\\\t\\001é漢'"), ['"\\\t\u0001é漢'])
        assert.deepStrictEqual(yield* lines("printf '\\303'; sleep 0.05; printf '\\251\\n'"), ["é"])
        assert.deepStrictEqual(yield* lines("printf '\\377\\376x\\n'"), ["\ufffd\ufffdx"])
        assert.deepStrictEqual(yield* lines("true"), [])
        const long = yield* lines("head -c 3000000 /dev/zero | tr '\\0' x")
        assert.deepStrictEqual(
          long.map((line) => line.length),
          [3_000_000]
        )
      })
    )

    it.scopedLive("keeps stdout and stderr apart, and lets both be opened again", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const all = yield* box.run("echo out; echo err >&2; echo again >/dev/stdout; echo wrong >/dev/stderr")
        assert.deepStrictEqual(outputOf(all), ["out", "again"])
        assert.deepStrictEqual(outputOf(all, "stderr"), ["err", "wrong"])
      })
    )

    it.scopedLive("tells how a command ended", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const end = (command: string, options: object = {}) =>
          Effect.map(box.run(command, options), (all) => all.at(-1))
        assert.strictEqual((yield* end("true"))?.type, "execution_complete")
        for (const code of [1, 2, 126, 137, 255]) {
          const event = yield* end(`exit ${code}`)
          assert.deepStrictEqual(
            [event?.type, event?.error?.ename, event?.error?.evalue],
            ["error", "CommandExecError", String(code)]
          )
        }
        assert.strictEqual((yield* end("kill -9 $$"))?.error?.evalue, "-1")
        assert.strictEqual((yield* end("kill -TERM $$"))?.error?.evalue, "-1")
        assert.strictEqual((yield* end("no-such-program-here"))?.error?.evalue, "127")
        const tooLong = yield* end(`: ${"x".repeat(3_000_000)}`)
        assert.strictEqual(tooLong?.type, "error")
        assert.notMatch(tooLong?.error?.evalue ?? "0", /^-?\d*$/)
        const failed = yield* box.run("exit 3")
        assert.deepInclude(yield* box.status(failed[0]?.text ?? ""), {
          running: false,
          exit_code: 3,
          content: "exit 3"
        })
        assert.strictEqual((yield* box.request("GET", "/command/status/none")).status, 404)
      })
    )

    it.scopedLive("runs with the directory, environment and shell asked for", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box({ ...fromImage, env: { FROM_SANDBOX: "s p a c e", BOTH: "1" } })
        assert.strictEqual(
          yield* box.text("echo $FROM_SANDBOX $BOTH $GIVEN", { envs: { BOTH: "2", GIVEN: "'$(x)\"" } }),
          "s p a c e 2 '$(x)\"\n"
        )
        yield* box.text("mkdir -p /workspace/deep 2>/dev/null || mkdir deep; echo here >$HOME/h")
        assert.match(yield* box.text("pwd", { cwd: "/workspace" }), /\/workspace\n$/)
        assert.match(yield* box.text("pwd"), /\/workspace\n$/)
        assert.strictEqual(
          (yield* box.request("POST", "/command", { body: { command: "pwd", cwd: "/not/there" } })).status,
          400
        )
        assert.strictEqual((yield* box.request("POST", "/command", { body: { command: "" } })).status, 400)
        assert.strictEqual((yield* box.request("POST", "/command", { body: {} })).status, 400)
        assert.strictEqual((yield* box.request("POST", "/command", { body: { command: "true", gid: 5 } })).status, 400)
        assert.strictEqual(yield* box.text("[[ x == x ]] && echo bash"), "bash\n")
        // Nothing of the server's own environment that may be secret.
        assert.notInclude(yield* box.text("env"), "VITEST")
        if (process.getuid?.() === 0) {
          assert.strictEqual(yield* box.text("id -u; id -g", { uid: 1234, gid: 4321, cwd: "/tmp" }), "1234\n4321\n")
        } else {
          assert.strictEqual(
            (yield* box.request("POST", "/command", { body: { command: "id", uid: 1234 } })).status,
            400
          )
        }
      })
    )

    it.scopedLive("gives variables to the command alone, not to what starts it", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box({ ...fromImage, env: { LD_LIBRARY_PATH: "/none" } })
        const preloaded = yield* box.run(":", { envs: { LD_PRELOAD: "/no/such.so" } })
        assert.strictEqual(preloaded.at(-1)?.type, "execution_complete")
        assert.isAtMost(outputOf(preloaded, "stderr").filter((line) => line.includes("/no/such.so")).length, 1)
        const odd = "a b\n'\"$x`\\é=;"
        const envs = { LD_ODD: odd, MALLOC_ODD: odd, "not-a-name": odd, ODD: odd }
        assert.strictEqual(
          yield* box.text(
            `printf '%s|' "$LD_LIBRARY_PATH" "$LD_ODD" "$MALLOC_ODD" "$ODD"; grep -ac not-a-name /proc/$$/environ`,
            { envs }
          ),
          `/none|${odd}|${odd}|${odd}|1\n`
        )
        if (mode === "namespaces") {
          yield* box.start("sleep 300", { envs: { TOKEN: "secret-of-the-test" } })
          assert.deepStrictEqual(processesWith("secret-of-the-test"), [])
        }
      })
    )

    it.scopedLive("kills the whole group on a timeout", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const time = nap()
        const all = yield* box.run(`echo before; sleep ${time} & sleep ${time}`, { timeout: 300 })
        assert.deepStrictEqual(outputOf(all), ["before"])
        assert.strictEqual(all.at(-1)?.error?.evalue, "-1")
        yield* becomes(() => processesWith(time).length === 0)
        assert.strictEqual((yield* box.status(all[0]?.text ?? "")).exit_code, -1)
      })
    )

    it.scopedLive("interrupts everything that a command started", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        for (const prefix of ["", "trap '' TERM; "]) {
          const time = nap()
          const running = yield* box.start(`${prefix}sleep ${time} & sleep ${time}`)
          yield* becomes(() => processesWith(`sleep\0${time}`).length === 2)
          assert.strictEqual((yield* box.request("DELETE", `/command?id=${running.id}`)).status, 200)
          assert.deepStrictEqual(processesWith(time), [])
          const all = yield* Effect.promise(running.rest)
          assert.strictEqual(all.at(-1)?.type, "error")
          assert.strictEqual((yield* box.status(running.id)).running, false)
        }
        assert.strictEqual((yield* box.request("DELETE", "/command?id=none")).status, 404)
        assert.strictEqual((yield* box.request("DELETE", "/command")).status, 400)
      })
    )

    it.scopedLive("interrupts a command that has only just started", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        for (let i = 0; i < 5; i++) {
          const time = nap()
          const running = yield* box.start(`sleep ${time}`)
          assert.strictEqual((yield* box.request("DELETE", `/command?id=${running.id}`)).status, 200)
          yield* becomes(() => processesWith(time).length === 0)
          assert.strictEqual((yield* box.status(running.id)).running, false)
        }
      })
    )

    it.scopedLive("ends with the command, not with what it left running", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const time = nap()
        const all = yield* box.run(`(while sleep 0.01; do echo late; done) & sleep ${time} & echo done`)
        assert.strictEqual(all.at(-1)?.type, "execution_complete")
        assert.include(outputOf(all), "done")
        // It keeps its pipe, so that it neither blocks nor is killed by writing.
        yield* Effect.sleep(200)
        assert.strictEqual(processesWith(`sleep\0${time}`).length, 1)
        assert.match(yield* box.text("ps ax 2>/dev/null | grep -c 'while sleep' || true"), /\d/)
      })
    )

    it.scopedLive("goes on without its client", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const running = yield* box.start("echo start; sleep 0.3; yes | head -c 5000000; echo end >$HOME/proof; exit 7")
        running.abort()
        assert.strictEqual((yield* box.status(running.id)).running, true)
        const status = yield* eventually(Effect.map(box.status(running.id), (now) => (now.running ? undefined : now)))
        assert.strictEqual(status.exit_code, 7)
        assert.isString(status.finished_at)
        assert.strictEqual(yield* box.text("cat $HOME/proof"), "end\n")
      })
    )

    it.scopedLive("waits for a slow client instead of buffering", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const running = yield* box.start("echo $$ >$HOME/pid; exec yes")
        const before = process.memoryUsage.rss()
        yield* Effect.sleep(1000)
        assert.isBelow(process.memoryUsage.rss() - before, 100e6)
        const yes = processesWith("yes").filter((pid) => Fs.readFileSync(`/proc/${pid}/cmdline`, "utf8") === "yes\0")
        const written = Math.max(
          ...yes.map((pid) => Number(/wchar: (\d+)/.exec(Fs.readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]))
        )
        assert.isBelow(written, 50e6)
        assert.strictEqual((yield* box.request("DELETE", `/command?id=${running.id}`)).status, 200)
      })
    )

    it.scopedLive("streams millions of lines", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const all = yield* box.run("yes | head -300000; seq 5 >&2")
        assert.strictEqual(outputOf(all).length, 300_000)
        assert.deepStrictEqual(outputOf(all, "stderr"), ["1", "2", "3", "4", "5"])
      })
    )

    it.scopedLive("sends output as it comes, and a heartbeat", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const running = yield* box.start("echo first; read -r _ <$HOME/fifo 2>/dev/null; sleep 4; echo last")
        yield* Effect.promise(() => running.until("first"))
        assert.strictEqual((yield* box.status(running.id)).running, true)
        const all = yield* Effect.promise(running.rest)
        assert.deepStrictEqual(outputOf(all), ["first", "last"])
        assert.isAtLeast(all.filter((event) => event.type === "ping").length, 1)
      })
    )

    it.scopedLive("runs in the background, with logs by cursor", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const all = yield* box.run(
          "echo é1; echo e2 >&2; while [ ! -e $HOME/go ]; do sleep 0.01; done; echo 3; exit 4",
          { background: true }
        )
        assert.deepStrictEqual(
          all.map((event) => event.type),
          ["init", "execution_complete"]
        )
        const id = all[0]?.text ?? ""
        assert.strictEqual((yield* box.status(id)).running, true)
        const first = yield* eventually(
          Effect.map(box.request("GET", `/command/${id}/logs`), (answer) =>
            answer.text === "é1\ne2\n" ? answer : undefined
          )
        )
        const cursor = first.headers.get("EXECD-COMMANDS-TAIL-CURSOR")
        yield* box.text("touch $HOME/go")
        const done = yield* eventually(Effect.map(box.status(id), (now) => (now.running ? undefined : now)))
        assert.strictEqual(done.exit_code, 4)
        const rest = yield* box.request("GET", `/command/${id}/logs?cursor=${cursor}`)
        assert.strictEqual(rest.text, "3\n")
        const end = yield* box.request(
          "GET",
          `/command/${id}/logs?cursor=${rest.headers.get("EXECD-COMMANDS-TAIL-CURSOR")}`
        )
        assert.strictEqual(end.text, "")
        assert.strictEqual((yield* box.request("GET", `/command/${id}/logs?cursor=-1`)).status, 400)
        assert.strictEqual((yield* box.request("GET", "/command/none/logs")).status, 404)
        const foreground = yield* box.run("true")
        assert.strictEqual((yield* box.request("GET", `/command/${foreground[0]?.text}/logs`)).status, 400)
      })
    )

    it.scopedLive("runs a hundred commands at once", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const numbers = Array.from({ length: 100 }, (_, index) => index)
        const all = yield* Effect.forEach(numbers, (n) => box.text(`echo ${n}; sleep 0.1`), { concurrency: 25 })
        assert.deepStrictEqual(
          all,
          numbers.map((n) => `${n}\n`)
        )
      })
    )

    it.scopedLive("notices the end of a command that was stopped and continued from inside", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const all = yield* box.run("(sleep 0.3; kill -CONT $$) & kill -STOP $$; echo on")
        assert.deepStrictEqual(outputOf(all), ["on"])
        assert.strictEqual(all.at(-1)?.type, "execution_complete")
      })
    )

    it.scopedLive("tells the machine's metrics", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const metrics = (yield* box.request("GET", "/metrics")).json
        for (const key of ["cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "timestamp"])
          assert.isNumber(metrics[key], key)
        assert.isAbove(metrics.mem_total_mib, metrics.mem_used_mib)
        const watched = yield* Effect.promise(async () => {
          const controller = new AbortController()
          const response = await fetch(`${box.url}/metrics/watch`, { headers: box.headers, signal: controller.signal })
          const reader = response.body?.getReader()
          let text = ""
          while (text.split("\n\n").length <= 2) text += new TextDecoder().decode((await reader?.read())?.value)
          controller.abort()
          return text
        })
        assert.isNumber(JSON.parse(watched.split("\n\n")[1] ?? "").cpu_count)
      })
    )
  })
}
