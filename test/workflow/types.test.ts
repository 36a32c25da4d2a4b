import type { Ledger, OpenSandboxError, Sandboxes } from "@sandglass/core"
import type { WorkflowError } from "@sandglass/workflow"
import { Steps, Workflow } from "@sandglass/workflow"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import { expectTypeOf, it } from "vitest"

class Database extends Context.Tag("Database")<Database, { readonly url: string }>() {}
class Mailer extends Context.Tag("Mailer")<Mailer, { readonly send: Effect.Effect<void> }>() {}
class Refused extends Data.TaggedError("Refused") {}
class Unsure extends Data.TaggedError("Unsure") {}

type VarsOf<W> = W extends Workflow.Workflow<infer Vars, infer _E, infer _R> ? Vars : never
type EffectOf<W> =
  W extends Workflow.Workflow<infer Vars, infer E, infer R>
    ? Effect.Effect<Workflow.Result<Vars>, WorkflowError.WorkflowError | E, Sandboxes.Sandboxes | Ledger.Ledger | R>
    : never

const options = { image: "i" } as const

it("a workflow requires sandboxes and a ledger, and fails with its own error", () => {
  const workflow = Workflow.make("w").pipe(Workflow.sandbox(options, (sb) => sb.exec("a")))
  expectTypeOf(Workflow.run(workflow)).toEqualTypeOf<
    Effect.Effect<Workflow.Result<object>, WorkflowError.WorkflowError, Sandboxes.Sandboxes | Ledger.Ledger>
  >()
  expectTypeOf(Workflow.resume(workflow, "r")).toEqualTypeOf<EffectOf<typeof workflow>>()
  expectTypeOf(Workflow.runWithProgress(workflow)).toEqualTypeOf<EffectOf<typeof workflow>>()
  expectTypeOf(Workflow.stream(workflow)).toExtend<
    Stream.Stream<{ readonly text: string }, WorkflowError.WorkflowError, Sandboxes.Sandboxes | Ledger.Ledger>
  >()
})

it("variables are typed by name", () => {
  const workflow = Workflow.make("w").pipe(
    Workflow.sandbox(options, (sb) =>
      sb
        .readFile("/v", "version")
        .exec((ctx) => {
          expectTypeOf(ctx.vars).toEqualTypeOf<{ readonly version: string }>()
          // @ts-expect-error there is none of this name
          ctx.vars.versoin
          return "a"
        })
        .effect("count", () => Effect.succeed(1), { as: "count", schema: Schema.Number })
        .effect("again", (_, ctx) => Effect.succeed(new Date(ctx.vars.count)), { as: "version", schema: Schema.Date })
    ),
    Workflow.sandbox(options, (sb) =>
      sb.when(
        (ctx) => {
          expectTypeOf(ctx.vars).toEqualTypeOf<{ readonly count: number; readonly version: Date }>()
          expectTypeOf(ctx.exitCode).toEqualTypeOf<number | undefined>()
          return ctx.vars.count > 1
        },
        (sb) => sb.readFile("/a", "both").readFile("/b", "one"),
        (sb) => sb.readFile("/c", "both").readFile("/d", "other")
      )
    )
  )
  expectTypeOf<VarsOf<typeof workflow>>().toEqualTypeOf<{
    readonly count: number
    readonly version: Date
    readonly both: string
    readonly one?: string | undefined
    readonly other?: string | undefined
  }>()
  expectTypeOf(Workflow.run(workflow)).toEqualTypeOf<EffectOf<typeof workflow>>()
})

it("variables of loops, retries and ways that may not be gone", () => {
  const items: ReadonlyArray<string> = []
  const workflow = Workflow.make("w").pipe(
    Workflow.sandbox(options, (sb) =>
      sb
        .retry({ times: 1 }, (sb) => sb.readFile("/a", "retried"))
        .when(
          () => true,
          (sb) => sb.readFile("/b", "maybe")
        )
        .forEach(["web", "api"], (sb, service) => {
          expectTypeOf(service).toEqualTypeOf<"web" | "api">()
          return sb.readFile(`/${service}`, `version-${service}`)
        })
        .forEach(items, { concurrency: 2 }, (sb, item, index) => {
          expectTypeOf(item).toEqualTypeOf<string>()
          expectTypeOf(index).toEqualTypeOf<number>()
          return sb.readFile(item, "last")
        })
    )
  )
  expectTypeOf<VarsOf<typeof workflow>>().toEqualTypeOf<{
    readonly retried: string
    readonly maybe?: string | undefined
    readonly "version-web": string
    readonly "version-api": string
    readonly last?: string | undefined
  }>()
})

it("what effects and predicates require and fail with is in the type", () => {
  const workflow = Workflow.make("w").pipe(
    Workflow.sandbox(options, (sb) =>
      sb
        .effect("query", () => Effect.flatMap(Database, () => new Refused()))
        .when(
          () => Effect.flatMap(Mailer, () => Effect.fail(new Unsure())),
          (sb) => sb
        )
    )
  )
  expectTypeOf(workflow).toEqualTypeOf<Workflow.Workflow<object, Refused | Unsure, Database | Mailer>>()

  const nested = Workflow.make("w").pipe(
    Workflow.parallel([options, options], (sb) =>
      sb.forEach([1, 2], (sb) =>
        sb.retry({ times: 1, schedule: Schedule.recurs(1) }, (sb) =>
          sb.exec("a", { rollback: (sb) => sb.effect("undo", () => Effect.zipRight(Database, new Refused())) })
        )
      )
    ),
    Workflow.sandbox(options, (sb) => sb.effect("in a scope", () => Effect.scope))
  )
  expectTypeOf(nested).toEqualTypeOf<Workflow.Workflow<object, Refused, Database>>()
  expectTypeOf<Scope.Scope>().not.toEqualTypeOf<never>()

  const failing = Workflow.make("w").pipe(
    Workflow.sandbox(options, (sb) => sb.effect("files", (sandbox) => sandbox.files.read("/a")))
  )
  expectTypeOf(failing).toEqualTypeOf<Workflow.Workflow<object, OpenSandboxError.OpenSandboxError>>()
  // @ts-expect-error a service is missing
  // @effect-diagnostics-next-line missingEffectContext:off
  const missing: Effect.Effect<unknown, unknown, Sandboxes.Sandboxes | Ledger.Ledger> = Workflow.run(nested)
  void missing
})

it("stages of a sequence know what came before", () => {
  const workflow = Workflow.make("w").pipe(
    Workflow.sandbox(options, (sb) => sb.readFile("/a", "first")),
    Workflow.sequence([
      {
        ...options,
        run: (sb, previous) => {
          expectTypeOf(previous.vars).toEqualTypeOf<{ readonly first: string }>()
          return sb.exec(previous.vars.first).readFile("/b", "second")
        }
      },
      {
        ...options,
        run: (sb, previous) => {
          expectTypeOf(previous.vars).toEqualTypeOf<{ readonly first: string; readonly second: string }>()
          return sb.effect("e", () => new Refused())
        }
      }
    ])
  )
  expectTypeOf(workflow).toEqualTypeOf<
    Workflow.Workflow<{ readonly first: string; readonly second: string }, Refused>
  >()
})

it("branches of a parallel stage may have steps of their own", () => {
  const workflow = Workflow.make("w").pipe(
    Workflow.parallel([
      { ...options, run: (sb) => sb.readFile("/a", "a") },
      { ...options, run: (sb) => sb.readFile("/a", "a") }
    ])
  )
  expectTypeOf<VarsOf<typeof workflow>>().toEqualTypeOf<{ readonly a: string }>()
  Workflow.make("w").pipe(
    Workflow.parallel([{ image: "i", metadata: { kind: "x" } }], (sb, branch, index) => {
      expectTypeOf(branch.metadata.kind).toEqualTypeOf<"x">()
      expectTypeOf(index).toEqualTypeOf<number>()
      return sb
    })
  )
})

it("parts can be shared", () => {
  const install = <Vars, E, R>(sb: Steps.Steps<Vars, E, R>) => sb.exec("npm ci").checkpoint("installed")
  const workflow = Workflow.make("w").pipe(Workflow.sandbox(options, (sb) => install(sb).readFile("/a", "a")))
  expectTypeOf<VarsOf<typeof workflow>>().toEqualTypeOf<{ readonly a: string }>()
  expectTypeOf(Steps.empty.exec("a")).toEqualTypeOf<Steps.Steps>()
})
