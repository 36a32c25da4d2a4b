import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { eventually, fromImage, modes, start } from "./support.js"

for (const mode of modes) {
  describe(`diagnostics (${mode})`, () => {
    it.scopedLive("tell what happened, and what the entrypoint prints", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box({
          ...fromImage,
          entrypoint: ["sh", "-c", "echo printed; echo too >&2; sleep 300"]
        })
        const get = (kind: string, scope: string) =>
          Effect.map(server.request("GET", `/sandboxes/${box.id}/diagnostics/${kind}?scope=${scope}`), (answer) => {
            assert.strictEqual(answer.status, 200)
            return answer.json
          })
        const logs = yield* eventually(
          Effect.map(get("logs", "container"), (found) => (found.content.includes("too\n") ? found : undefined))
        )
        assert.deepStrictEqual(logs, {
          sandboxId: box.id,
          kind: "logs",
          scope: "container",
          delivery: "inline",
          contentType: "text/plain; charset=utf-8",
          content: "printed\ntoo\n",
          contentLength: 12,
          truncated: false
        })
        yield* box.run("echo not to be seen; exit 3")
        yield* server.request("POST", `/sandboxes/${box.id}/pause`)
        yield* server.request("POST", `/sandboxes/${box.id}/resume`)
        const lifecycle = (yield* get("events", "lifecycle")).content
        assert.match(lifecycle, /^\d{4}-\S+Z lifecycle created\n\S+ lifecycle paused\n\S+ lifecycle resumed\n$/)
        const processes = (yield* get("events", "process")).content
        assert.match(processes, /command \w+ \(echo not to be seen; exit 3\) ended: exit status 3\n/)
        assert.match((yield* get("events", "runtime")).content, new RegExp(`isolation: ${mode}`))
        const all = (yield* get("logs", "all")).content
        for (const text of ["created", "exit status 3", "isolation", "printed"]) assert.include(all, text)
        assert.strictEqual((yield* get("events", "all")).content.includes("printed\n"), false)
        for (const query of ["", "?scope=", "?scope=network"]) {
          const answer = yield* server.request("GET", `/sandboxes/${box.id}/diagnostics/logs${query}`)
          assert.strictEqual(answer.status, 400, query)
          assert.include(answer.json.message, "container")
        }
        assert.strictEqual((yield* server.request("GET", "/sandboxes/none/diagnostics/logs?scope=all")).status, 404)
        const other = yield* server.request("GET", `/sandboxes/${box.id}/diagnostics/traces?scope=all`)
        assert.strictEqual(other.status, 501)
      })
    )
  })
}
