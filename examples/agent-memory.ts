/**
 * An agent whose memory survives its sandboxes: three sessions, each with a sandbox of its own, each opening the same file anew.
 *
 *     bun examples/agent-memory.ts
 */
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { BunRuntime } from "@effect/platform-bun"
import { Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { Agents, EmbeddingModel } from "@sandglass/memory"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import type { Scope } from "effect"
import { Console, Effect, Layer, Option, Stream } from "effect"

const scout = { name: "scout", image: "node:22" }
const look = "echo 'deploys on Tuesdays' > policy.txt && cat policy.txt"

/** Looks around, and remembers what it found, with the proof. */
const first = Effect.gen(function* () {
  const agents = yield* Agents.Agents
  const { memory, sandbox } = yield* agents.load(scout)
  const { stdout } = yield* sandbox.exec(look)
  const outputs = memory.episodicRecall({ events: ["exec.output"], limit: 1 })
  const [proof] = yield* Stream.runCollect(outputs)
  yield* memory.remember({
    content: `The project ${stdout.trim()}`,
    ...(proof === undefined ? {} : { sourceRef: yield* memory.sourceRef(proof) })
  })
  yield* memory.set("task", { step: 1, of: 3 })
  yield* sandbox.checkpoint("looked around")
  yield* Console.log(`first session, ${sandbox.name}: remembered`)
})

/** Another sandbox, the same memory; and a child that takes both along. */
const second = Effect.gen(function* () {
  const agents = yield* Agents.Agents
  const agent = yield* agents.load(scout)
  const { exitCode } = yield* agent.sandbox.exec("test -e policy.txt", { strict: false })
  yield* Console.log(`second session, another sandbox without that file: exit code ${exitCode}`)
  yield* Console.log(yield* agent.memory.buildContextSnippet({ query: "which day is the deploy?" }))
  const child = yield* agent.spawn({ name: "scout-2" })
  yield* child.memory.set("task", { step: 2, of: 3 })
  yield* Console.log(`child: ${JSON.stringify(Option.getOrNull(yield* child.memory.get("task")))}`)
  yield* Console.log(`parent: ${JSON.stringify(Option.getOrNull(yield* agent.memory.get("task")))}`)
})

/** Goes on in the state of the first sandbox, and tells what happened. */
const third = Effect.gen(function* () {
  const agents = yield* Agents.Agents
  const sandboxes = yield* Sandboxes.Sandboxes
  const oldest = yield* sandboxes.list({ name: scout.name }).pipe(Stream.runLast, Effect.flatten)
  const agent = yield* agents.resume(oldest.sandboxId)
  const { replayed } = yield* agent.sandbox.exec(look)
  const { stdout } = yield* agent.sandbox.exec("cat policy.txt")
  yield* Console.log(`third session, resumed (replayed: ${replayed}): ${stdout.trim()}`)
  yield* agent.memory
    .episodicRecall({ events: ["sandbox.created", "exec.started"] })
    .pipe(Stream.runForEach(({ event, payload }) => Console.log(`${event} ${JSON.stringify(payload)}`)))
})

const program = Effect.gen(function* () {
  const folder = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(join(tmpdir(), "sandglass-agent-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true }))
  )
  const server = yield* Layer.memoize(LocalOpenSandbox.layer)
  const run = <A, E>(session: Effect.Effect<A, E, Agents.Agents | Sandboxes.Sandboxes | Scope.Scope>) =>
    session.pipe(
      Effect.scoped,
      Effect.provide(
        Agents.layer.pipe(
          Layer.provideMerge(Sandboxes.layer),
          Layer.provide(SqliteMemory.layer({ filename: join(folder, "agent.db") })),
          Layer.provide(Layer.merge(server, EmbeddingModel.layerLexical()))
        )
      )
    )
  yield* run(first)
  yield* run(second)
  yield* run(third)
}).pipe(Effect.scoped)

BunRuntime.runMain(program)
