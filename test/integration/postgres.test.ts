import { assert, describe, it } from "@effect/vitest"
import { Ledger, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { PgLedger } from "@sandglass/sql-pg"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { client, database, server } from "../support/postgres.js"

/** Sandboxes of one host: a pool of its own, and the one server that all hosts use. */
const host = (url: Redacted.Redacted<string>) =>
  Effect.gen(function* () {
    const local = yield* Effect.context<Layer.Layer.Success<typeof LocalOpenSandbox.layer>>()
    const context = yield* Layer.build(
      Layer.fresh(
        Sandboxes.layer.pipe(Layer.provideMerge(PgLedger.layer({ url })), Layer.provide(Layer.succeedContext(local)))
      )
    )
    return { ledger: Context.get(context, Ledger.Ledger), sandboxes: Context.get(context, Sandboxes.Sandboxes) }
  })

describe("sandboxes over a ledger in Postgres", () => {
  it.live(
    "one host creates, runs and checkpoints; another one follows, lists and resumes",
    () =>
      Effect.gen(function* () {
        const url = yield* database
        const one = yield* host(url)
        const two = yield* host(url)
        const followed = yield* two.ledger.tail({ name: "it" }).pipe(
          Stream.takeUntil(({ event }) => event === "sandbox.checkpoint_created"),
          Stream.runCollect,
          Effect.fork
        )
        const sandbox = yield* one.sandboxes.create({ image: "node:22", name: "it" })
        const first = yield* sandbox.exec("echo installed > state; seq 1 20000; echo done >&2")
        assert.deepStrictEqual([first.stdout.split("\n").length, first.stderr], [20_001, "done\n"])
        const failed = yield* Effect.flip(sandbox.exec("echo no; exit 3"))
        assert.deepInclude(failed, { _tag: "CommandError", exitCode: 3 })
        yield* sandbox.checkpoint("installed")
        yield* sandbox.exec("echo later > state")

        const seen = Array.from(yield* Fiber.join(followed))
        assert.deepStrictEqual(
          seen,
          Array.from(yield* Stream.runCollect(Stream.take(one.ledger.read({ name: "it" }), seen.length)))
        )
        const [listed] = Array.from(yield* Stream.runCollect(two.sandboxes.list({ name: "it", status: "running" })))
        assert.strictEqual(listed?.sandboxId, sandbox.id)

        const resumed = yield* two.sandboxes.resume(sandbox.id, { tag: "installed" })
        const replayed = yield* resumed.exec("echo installed > state; seq 1 20000; echo done >&2")
        assert.deepInclude(replayed, { stdout: first.stdout, stderr: first.stderr, exitCode: 0, replayed: true })
        assert.deepInclude(yield* resumed.exec("echo no; exit 3", { strict: false }), { exitCode: 3, replayed: true })
        assert.deepInclude(yield* resumed.exec("cat state"), { stdout: "installed\n", replayed: false })

        const sql = yield* client(url)
        const rows = yield* sql`SELECT payload->>'resumedFrom' AS parent FROM alineo_events
          WHERE sandbox_id = ${resumed.id} AND event = 'sandbox.created'`
        assert.deepStrictEqual(rows, [{ parent: sandbox.id }])
      }).pipe(Effect.scoped, Effect.provide(LocalOpenSandbox.layer)),
    60_000
  )

  it.live(
    "a database that goes away in the middle of a command: the command is stopped, and the exec fails as the ledger did",
    () =>
      Effect.gen(function* () {
        const own = yield* server
        const { ledger, sandboxes } = yield* host(Redacted.make(own.url("postgres")))
        const sandbox = yield* sandboxes.create({ image: "node:22", name: "it" })
        const running = yield* sandbox
          .exec("echo $$ > pid; while :; do echo line; sleep 0.02; done")
          .stdout.pipe(Stream.runDrain, Effect.flip, Effect.fork)
        const lines = ledger.read({ sandboxId: sandbox.id, events: ["exec.output"] })
        yield* Effect.repeat(Stream.runCount(lines), { until: (count) => count > 5 })
        yield* Effect.promise(() => own.stop("fast"))
        const error = yield* Effect.timeout(Fiber.join(running), "20 seconds")
        assert.deepInclude(error, { _tag: "LedgerError", reason: "Connection" })
        yield* Effect.promise(own.start)
        // The pool has recovered, and so has the sandbox.
        const { stdout } = yield* sandbox.exec("kill -0 $(cat pid) 2>/dev/null && echo alive || echo stopped")
        assert.strictEqual(stdout, "stopped\n")
      }).pipe(Effect.scoped, Effect.provide(LocalOpenSandbox.layer)),
    60_000
  )
})
