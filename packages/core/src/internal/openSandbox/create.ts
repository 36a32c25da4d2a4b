/** @internal */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { CreateRequest, OpenSandbox, SandboxInfo } from "../../OpenSandbox.js"
import { concealed } from "../http/concealed.js"
import type { Where } from "../http/error.js"
import { invalidRequest, isAmbiguous } from "../http/error.js"
import type { Caller } from "./caller.js"
import { span, where } from "./caller.js"
import * as CreateWire from "./createWire.js"
import { listAt, removeAt, sandboxBody } from "./sandboxes.js"

/** Looks for the sandbox of a create whose answer never came. */
const findCreated = (
  caller: Caller,
  at: Where,
  createKey: string,
  delays: ReadonlyArray<number>
): Effect.Effect<Option.Option<SandboxInfo>> => {
  const look = listAt(caller, at, { metadata: { [CreateWire.createKeyLabel]: createKey } }, identity).pipe(
    // a server that ignores the filter answers with everybody's
    Stream.filter((sandbox) => sandbox.metadata[CreateWire.createKeyLabel] === createKey),
    Stream.runHead,
    Effect.orElseSucceed(() => Option.none<SandboxInfo>())
  )
  const loop = (index: number): Effect.Effect<Option.Option<SandboxInfo>> => {
    const delay = delays[index]
    return delay === undefined
      ? Effect.succeedNone
      : Effect.sleep(delay).pipe(
          Effect.zipRight(look),
          Effect.flatMap((found) => (Option.isSome(found) ? Effect.succeed(found) : loop(index + 1)))
        )
  }
  return loop(0)
}

const sourceAttributes = (request: CreateRequest): { readonly [key: string]: string } => {
  const image = typeof request.image === "string" ? request.image : request.image?.uri
  const out: Record<string, string> = {}
  if (image !== undefined) out["container.image.name"] = image
  if (request.snapshotId !== undefined) out["snapshot.id"] = request.snapshotId
  return out
}

/** @internal */
export const makeCreate =
  (caller: Caller, nextId: Effect.Effect<string>): Context.Tag.Service<OpenSandbox>["create"] =>
  (input) => {
    const at = where("create")
    return Effect.suspend(() => {
      const problem = CreateWire.createProblem(input)
      return problem === undefined ? nextId : Effect.fail(invalidRequest(at, problem))
    }).pipe(
      Effect.flatMap((createKey) =>
        caller
          .call(at, "POST", "/sandboxes", sandboxBody(at), {
            body: () => CreateWire.createBody(input, createKey),
            timeout: caller.createTimeout
          })
          .pipe(
            Effect.catchIf(isAmbiguous, (error) =>
              Effect.flatMap(
                findCreated(caller, at, createKey, [0, 500, 1000, 2000, 4000]),
                Option.match({ onNone: () => Effect.fail(error), onSome: Effect.succeed })
              )
            ),
            Effect.onInterrupt(() =>
              findCreated(caller, at, createKey, [100, 500, 1500, 2500]).pipe(
                Effect.flatMap(
                  Option.match({
                    onNone: () => Effect.void,
                    onSome: ({ id }) => removeAt(caller, at, id)
                  })
                ),
                Effect.interruptible,
                Effect.timeout("10 seconds"),
                Effect.catchAllCause((cause) =>
                  Effect.logWarning("a sandbox may be left over from an interrupted create", cause).pipe(
                    Effect.annotateLogs({ [CreateWire.createKeyLabel]: createKey })
                  )
                )
              )
            )
          )
      ),
      Effect.mapError(concealed(CreateWire.secretsOf(input))),
      Effect.tap(({ id }) => Effect.annotateCurrentSpan("sandbox.id", id)),
      span("create", sourceAttributes(input))
    )
  }
