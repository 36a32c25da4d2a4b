// What a user writes first with @sandglass/workflow: a workflow, its plan, its graph; and a run that is refused before anything is asked of
// a server. `npm run build` runs it against the packed packages, under Bun and under Node.
import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
import { Workflow } from "@sandglass/workflow"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const ci = (times: number) =>
  Workflow.make("ci").pipe(
    Workflow.sandbox({ image: "node:22" }, (sb) =>
      sb
        .exec("npm ci")
        .retry({ times }, (sb) => sb.exec("npm test"))
        .readFile("/tmp/version", "version")
    )
  )

const program = Effect.gen(function* () {
  const kinds = Workflow.plan(ci(3)).stages[0]?.branches[0]?.steps?.map(({ kind }) => kind)
  if (kinds?.join() !== "exec,retry,readFile") return yield* Effect.dieMessage(`planned ${kinds?.join()}`)
  if (!Workflow.toMermaid(ci(3)).startsWith("flowchart TD")) return yield* Effect.dieMessage("no flowchart")
  const error = yield* Effect.flip(Workflow.run(ci(0)))
  if (error.reason !== "InvalidInput") return yield* error
})

const Live = Sandboxes.layer.pipe(
  Layer.provideMerge(Layer.merge(OpenSandbox.layer({ url: "http://127.0.0.1:1" }), Ledger.layerMemory))
)

await Effect.runPromise(program.pipe(Effect.provide(Live)))
