/**
 * A process that stops for good at each of its writes to the ledger, before one and after the next: whoever takes up the run brings it to the
 * same end, with each command run once.
 */
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { FetchHttpClient, HttpClient } from "@effect/platform"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { Workflow, WorkflowError } from "@sandglass/workflow"
import type * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Schema from "effect/Schema"
import { all, onServer } from "./support.js"

type Service = Context.Tag.Service<Ledger.Ledger>

/** Everything stops with the write of this number. */
const stopping = (ledger: Service, http: HttpClient.HttpClient, at: number, when: "before" | "after") =>
  Effect.map(Deferred.make<void>(), (stopped) => {
    let count = 0
    /** Once it has stopped, the process asks nobody anything. */
    const client = HttpClient.mapRequestEffect(http, (request) =>
      count >= at ? Effect.never : Effect.succeed(request)
    )
    const guard = <A, E>(append: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      Effect.suspend(() => {
        count++
        const stop = Effect.zipRight(Deferred.succeed(stopped, void 0), Effect.never)
        if (count > at) return Effect.never
        if (count < at) return append
        return when === "before" ? stop : Effect.zipRight(append, stop)
      })
    return {
      stopped: Deferred.await(stopped),
      client,
      ledger: Ledger.Ledger.of({
        ...ledger,
        append: (event) => guard(ledger.append(event)),
        appendAll: (events) => guard(ledger.appendAll(events))
      })
    }
  })

/** Runs it with a process that stops there, takes it up, and gives the end and what was left in the file; nothing if it did not come so far. */
const crash = (
  workflowOf: (file: string) => Workflow.Workflow<unknown, unknown>,
  server: Context.Tag.Service<LocalOpenSandbox.LocalServer>,
  at: number,
  when: "before" | "after"
) =>
  Effect.gen(function* () {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-points-"))),
      (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
    )
    const file = Path.join(folder, "effects")
    const workflow = workflowOf(file)
    const runId = `r-${at}-${when}`
    const ledger = yield* Ledger.makeMemory
    const http = yield* HttpClient.HttpClient
    const stop = yield* stopping(ledger, http, at, when)
    const process = (ledger: Service, client: HttpClient.HttpClient) =>
      Sandboxes.layerWith({ closeTimeout: "1 second" }).pipe(
        Layer.provideMerge(Layer.succeed(Ledger.Ledger, ledger)),
        Layer.provide(OpenSandbox.layerWithoutHttpClient({ url: server.url, apiKey: server.apiKey })),
        Layer.provide(Layer.succeed(HttpClient.HttpClient, client))
      )
    const dying = yield* Effect.forkDaemon(
      Workflow.run(workflow, { runId }).pipe(
        Effect.exit,
        Effect.provide(process(stop.ledger, stop.client)),
        // What it says when it is put away at the end is of no interest.
        Logger.withMinimumLogLevel(LogLevel.None)
      )
    )
    const ended = yield* Effect.raceFirst(Effect.as(stop.stopped, undefined), Fiber.join(dying))
    if (ended !== undefined) return undefined
    const outcome = yield* Workflow.resume(workflow, runId).pipe(
      Effect.catchIf(
        (error) => WorkflowError.isWorkflowError(error) && error.reason === "RunNotFound",
        () => Workflow.run(workflow, { runId })
      ),
      Effect.exit,
      Effect.provide(process(ledger, http))
    )
    const lines = Fs.existsSync(file) ? Fs.readFileSync(file, "utf8").trimEnd().split("\n") : []
    const left = yield* all(ledger.sandboxes({ status: "running" }))
    const [last] = yield* all(ledger.read({ sandboxId: runId, order: "desc", limit: 1 }))
    return { runId, outcome, lines, left: left.map(({ sandboxId }) => sandboxId), last: last?.event }
  }).pipe(Effect.scoped, Effect.provide(FetchHttpClient.layer))

/** All points, several at once, until the process gets to its end. */
const everywhere = (
  workflowOf: (file: string) => Workflow.Workflow<unknown, unknown>,
  check: (found: Effect.Effect.Success<ReturnType<typeof crash>> & object) => void
) =>
  Effect.gen(function* () {
    const server = yield* LocalOpenSandbox.LocalServer
    let at = 0
    let points = 0
    let over = false
    const worker = Effect.gen(function* () {
      while (!over) {
        at++
        const found = yield* crash(workflowOf, server, at, at % 2 === 1 ? "before" : "after")
        if (found === undefined) over = true
        else {
          points++
          check(found)
        }
      }
    })
    yield* Effect.all([worker, worker, worker, worker], { concurrency: 4, discard: true })
    // What the dead left of containers that no ledger knows is taken up by the same key, so that nothing is left.
    assert.deepStrictEqual(yield* onServer, [])
    return points
  }).pipe(Effect.scoped, Effect.provide(LocalOpenSandbox.layerServer({ mode: "plain" })))

describe("a process that stops at any of its writes", () => {
  it.live(
    "of a run that goes well",
    () =>
      Effect.gen(function* () {
        const points = yield* everywhere(
          (file) =>
            Workflow.make("good").pipe(
              Workflow.sandbox({ image: "a" }, (sb) =>
                sb
                  .exec(`echo one >>'${file}'; echo one`)
                  .retry({ times: 1 }, (sb) => sb.exec(`echo two >>'${file}'; test $(grep -c two '${file}') -ge 2`))
                  .when(
                    (ctx) => ctx.exitCode === 0,
                    (sb) => sb.checkpoint()
                  )
                  .effect("note", (sandbox) => Effect.map(sandbox.files.exists("/workspace/none"), String), {
                    as: "note",
                    schema: Schema.String
                  })
              ),
              Workflow.parallel([{ image: "b" }, { image: "c" }], (sb, _, index) =>
                sb.exec(`echo branch${index} >>'${file}'; echo branch${index}`)
              )
            ),
          ({ last, left, lines, outcome, runId }) => {
            if (Exit.isFailure(outcome)) throw new Error(`${runId}: ${outcome.cause}`)
            assert.strictEqual(outcome.value.stdout, "one\nbranch0\nbranch1\n", runId)
            assert.deepStrictEqual(lines.toSorted(), ["branch0", "branch1", "one", "two", "two"], runId)
            assert.deepStrictEqual([left, last], [[], "run.completed"], runId)
          }
        )
        assert.isAtLeast(points, 35)
      }),
    240_000
  )

  it.live(
    "of a run that fails and undoes what it has done",
    () =>
      Effect.gen(function* () {
        const points = yield* everywhere(
          (file) =>
            Workflow.make("bad").pipe(
              Workflow.sandbox({ image: "a" }, (sb) =>
                sb.exec(`echo one >>'${file}'`, { rollback: (sb) => sb.exec(`echo undo-one >>'${file}'`) })
              ),
              Workflow.sandbox({ image: "b" }, (sb) =>
                sb
                  .exec(`echo two >>'${file}'`, {
                    rollback: (sb) => sb.exec(`echo undo-two >>'${file}'`).exec(`echo really >>'${file}'`)
                  })
                  .exec(`echo fail >>'${file}'; exit 5`)
              )
            ),
          ({ last, left, lines, outcome, runId }) => {
            assert.isTrue(Exit.isFailure(outcome), runId)
            const error = Exit.isFailure(outcome) && outcome.cause._tag === "Fail" ? outcome.cause.error : undefined
            assert.deepInclude(error, { reason: "StepFailed", stage: 1, step: "1" }, runId)
            assert.deepStrictEqual(lines, ["one", "two", "fail", "undo-two", "really", "undo-one"], runId)
            assert.deepStrictEqual([left, last], [[], "run.failed"], runId)
          }
        )
        assert.isAtLeast(points, 30)
      }),
    240_000
  )
})
