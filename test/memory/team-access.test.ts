import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import {
  EmbeddingModel,
  EpisodicMemory,
  Memory,
  MemoryError,
  SemanticMemory,
  TeamAccess,
  WorkingMemory
} from "@sandglass/memory"
import { SemanticMemoryContract, WorkingMemoryContract } from "@sandglass/memory/testing"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"

class Teams extends Context.Reference<Teams>()("test/Teams", {
  defaultValue: (): ReadonlyArray<string> => []
}) {}

const everything = Layer.provide(Memory.layerMemory, Layer.merge(EmbeddingModel.layerLexical(), Ledger.layerMemory))

const ours = { resourceId: "user-7", teamId: "ours" }
const theirs = { resourceId: "user-7", teamId: "theirs" }
const nobodys = { resourceId: "user-7" }

const asked: Array<TeamAccess.AccessRequest> = []

const guarded = TeamAccess.withTeamAccessControl(everything, (request) =>
  Effect.map(Teams, (teams) => {
    asked.push(request)
    return teams.includes(request.teamId)
  })
)

const inTeam = Effect.provideService(Teams, ["ours"])

/** What a call comes to: its value, or its failure. */
const run = (result: unknown): Effect.Effect<unknown, unknown> => {
  if (!Effect.isEffect(result)) return Stream.runCollect(result as Stream.Stream<unknown, unknown>)
  // @effect-diagnostics-next-line unsafeEffectTypeAssertion:off
  return result as Effect.Effect<unknown, unknown>
}

/** Every function of a service that takes a ref, as a list of its own name and itself. */
const methodsOf = (service: object): ReadonlyArray<readonly [string, (...args: ReadonlyArray<unknown>) => unknown]> =>
  Object.entries(service).filter(([name, member]) => typeof member === "function" && name !== "sourceRef")

const services = Effect.gen(function* () {
  const working = yield* WorkingMemory.WorkingMemory
  const semantic = yield* SemanticMemory.SemanticMemory
  const episodic = yield* EpisodicMemory.EpisodicMemory
  const memory = yield* Memory.Memory
  const full = yield* Memory.FullMemory
  return [
    working,
    semantic,
    yield* semantic.prunable,
    episodic,
    memory,
    full,
    memory.working,
    memory.episodic,
    full.working,
    full.episodic
  ]
})

describe("withTeamAccessControl", () => {
  it.effect("no method of any service is open to who may not", () =>
    Effect.gen(function* () {
      let count = 0
      for (const service of yield* services) {
        for (const [name, method] of methodsOf(service)) {
          asked.length = 0
          const error = yield* Effect.flip(run(method(theirs, theirs, theirs)))
          assert.instanceOf(error, MemoryError.MemoryAccessDenied, name)
          assert.deepInclude(error, theirs)
          assert.strictEqual(error.method.split(".")[1], name)
          assert.deepStrictEqual(asked, [{ ...theirs, method: error.method }])
          count++
        }
      }
      assert.isAtLeast(count, 60)
    }).pipe(Effect.provide(guarded), inTeam)
  )

  it.effect("who may, and what is no team's, gets through", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const working = yield* WorkingMemory.WorkingMemory
      for (const ref of [ours, nobodys]) {
        asked.length = 0
        yield* working.set(ref, "k", 1)
        assert.deepStrictEqual(yield* memory.working.get(ref, "k"), Option.some(1))
        yield* memory.remember(ref, { content: "Lives in Vienna" })
        assert.strictEqual((yield* memory.recall(ref, "Vienna")).length, 1)
        assert.deepInclude(yield* memory.fork(ref, `child of ${ref.resourceId}`), {
          workingKeysCopied: 1,
          semanticFactsCopied: 1
        })
        assert.strictEqual(asked.length, ref === ours ? 6 : 0)
      }
    }).pipe(Effect.provide(guarded), inTeam)
  )

  it.effect("nothing of the provider is touched where access is denied", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory.WorkingMemory
      const error = yield* Effect.flip(working.set(theirs, "k", 1))
      assert.strictEqual(error._tag, "MemoryAccessDenied")
      const other = yield* Effect.flip(
        working.modify(theirs, "k", () => Effect.dieMessage("it must not be asked for a value"))
      )
      assert.strictEqual(other._tag, "MemoryAccessDenied")
      const copy = yield* Effect.flip(working.copy(nobodys, theirs))
      assert.strictEqual(copy._tag, "MemoryAccessDenied")
    }).pipe(
      // Whatever is called of it is a defect.
      Effect.provide(
        TeamAccess.withTeamAccessControl(Layer.mock(WorkingMemory.WorkingMemory, { transaction: Option.none() }), () =>
          Effect.succeed(false)
        )
      )
    )
  )

  it.effect("a checker that fails says no, and one that answers something else than yes too", () =>
    Effect.gen(function* () {
      const failing: ReadonlyArray<TeamAccess.Checker<string>> = [
        () => Effect.fail("directory is down"),
        () => Effect.succeed(JSON.parse('"yes"')),
        () => Effect.succeed(JSON.parse("1"))
      ]
      for (const checker of failing) {
        const error = yield* Effect.flatMap(WorkingMemory.WorkingMemory, (_) => Effect.flip(_.get(ours, "k"))).pipe(
          Effect.provide(TeamAccess.withTeamAccessControl(WorkingMemory.layerMemory, checker))
        )
        assert.strictEqual(error._tag, "MemoryAccessDenied")
      }
      const exit = yield* Effect.flatMap(WorkingMemory.WorkingMemory, (_) => Effect.exit(_.get(ours, "k"))).pipe(
        Effect.provide(TeamAccess.withTeamAccessControl(WorkingMemory.layerMemory, () => Effect.dieMessage("bug")))
      )
      assert.isTrue(Exit.isFailure(exit))
    })
  )

  it.effect("a ref that names nobody is no reason to ask", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory.WorkingMemory
      asked.length = 0
      for (const ref of [
        { resourceId: "r", teamId: " " },
        { resourceId: " ", teamId: "ours" }
      ]) {
        assert.strictEqual((yield* Effect.flip(working.get(ref, "k")))._tag, "InvalidResourceRef")
      }
      assert.deepStrictEqual(asked, [])
    }).pipe(Effect.provide(guarded), inTeam)
  )

  it.effect("a ref that changes while it is checked is used as it was", () =>
    Effect.gen(function* () {
      const plain = yield* Layer.build(WorkingMemory.layerMemory)
      const provider = Context.get(plain, WorkingMemory.WorkingMemory)
      yield* provider.set(theirs, "k", "secret")
      const ref = { resourceId: "user-7", teamId: "ours" }
      const context = yield* Layer.build(
        TeamAccess.withTeamAccessControl(Layer.succeedContext(plain), ({ teamId }) =>
          Effect.sync(() => {
            ref.teamId = "theirs"
            return teamId === "ours"
          })
        )
      )
      const value = yield* Context.get(context, WorkingMemory.WorkingMemory).get(ref, "k")
      assert.deepStrictEqual(value, Option.none())
    }).pipe(Effect.scoped)
  )

  it.effect("what the layer does not provide it does not provide with a checker either", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(
        TeamAccess.withTeamAccessControl(WorkingMemory.layerMemory, () => Effect.succeed(true))
      )
      assert.deepStrictEqual(Array.from(context.unsafeMap.keys()), [WorkingMemory.WorkingMemory.key])
    }).pipe(Effect.scoped)
  )
})

// With a checker that says yes, a memory is what it was.
const yes = () => Effect.succeed(true)
WorkingMemoryContract.suite("memory, checked", TeamAccess.withTeamAccessControl(WorkingMemory.layerMemory, yes))
SemanticMemoryContract.suite("memory, checked", TeamAccess.withTeamAccessControl(SemanticMemory.layerMemory, yes))
