/** @internal */
import type * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import type { AttachOptions, TerminalEvent, TerminalInfo } from "../../../Execd.js"
import { OpenSandboxError } from "../../../OpenSandboxError.js"
import { retryDelay } from "../../http/client.js"
import type { Caller } from "../caller.js"
import type { Attached } from "./attach.js"
import { attach } from "./attach.js"

const isLost = (error: OpenSandboxError): boolean => error.reason === "Transport" || error.reason === "Timeout"

/**
 * A connection that is replaced when it is lost, and goes on where it broke off.
 *
 * @internal
 */
export const attachReconnecting = (
  caller: Caller,
  terminalId: string,
  options: AttachOptions,
  info: Effect.Effect<TerminalInfo, OpenSandboxError>
): Effect.Effect<Attached, OpenSandboxError, Scope.Scope> =>
  Effect.gen(function* () {
    const at = caller.where("attachTerminal")
    const parent = yield* Effect.scope
    const open = (options: AttachOptions) =>
      Effect.flatMap(Scope.fork(parent, ExecutionStrategy.sequential), (scope) =>
        attach(caller, terminalId, options).pipe(
          Scope.extend(scope),
          Effect.map((attached) => ({ attached, close: Scope.close(scope, Exit.void) })),
          Effect.onError(() => Scope.close(scope, Exit.void))
        )
      )

    let current = yield* open(options)
    let position = options.since ?? 0
    // since the last output
    let attempts = 0
    let reopened = false
    // whether what comes next has to follow on `position`
    let resumed = false
    let given: OpenSandboxError | undefined
    const usable = yield* Effect.makeLatch(true)

    const lostFor = (description: string): OpenSandboxError =>
      new OpenSandboxError({ ...at, reason: "Transport", description })

    const giveUp = (error: OpenSandboxError): Effect.Effect<never, OpenSandboxError> =>
      Effect.suspend(() => {
        given = error
        return Effect.zipRight(usable.open, Effect.fail(error))
      })

    const mixed = "output came while the connection was lost, and execd does not tell which of the pipes it came from"

    const reopen = Effect.gen(function* () {
      const { outputOffset, running } = yield* info
      // to attach would start it anew
      if (!running) {
        return yield* giveUp(lostFor("the process ended while the connection was lost; its exit code is not known"))
      }
      if (options.pipe === true && outputOffset !== position) return yield* giveUp(lostFor(mixed))
      current = yield* open({ pipe: options.pipe, since: position, takeover: true })
      reopened = true
      resumed = true
      yield* usable.open
    })

    const replace = (lost: OpenSandboxError): Effect.Effect<void, OpenSandboxError> =>
      Effect.suspend(() => {
        if (given !== undefined || attempts >= caller.policy.times) return giveUp(given ?? lost)
        const attempt = attempts++
        const wait =
          attempt === 0
            ? Effect.void
            : Effect.flatMap(retryDelay(caller.policy, attempt - 1, lost), (millis) => Effect.sleep(millis))
        return Effect.zipRight(wait, reopen).pipe(
          Effect.catchAll((error) =>
            given === undefined && (error.isRetryable || error.reason === "Conflict") ? replace(error) : giveUp(error)
          )
        )
      })

    const follow = (events: Chunk.Chunk<TerminalEvent>): Effect.Effect<Chunk.Chunk<TerminalEvent>, OpenSandboxError> =>
      Effect.suspend(() => {
        for (const event of events) {
          if (event._tag !== "Output") continue
          const missing = event.offset - event.bytes.length - position
          if (resumed && missing > 0) {
            return giveUp(lostFor(`${missing} bytes of output are lost: execd no longer has them`))
          }
          if (reopened && event.replayed && options.pipe === true) return giveUp(lostFor(mixed))
          attempts = 0
          resumed = true
          position = event.offset
        }
        return Effect.succeed(events)
      })

    const pull: Attached["pull"] = Effect.suspend(() =>
      given === undefined ? current.attached.pull : Effect.fail(Option.some(given))
    ).pipe(
      Effect.flatMap((events) => Effect.mapError(follow(events), Option.some)),
      Effect.catchAll((end) =>
        Option.isSome(end) && given === undefined && isLost(end.value)
          ? usable.close.pipe(
              Effect.zipRight(current.close),
              Effect.zipRight(Effect.mapError(replace(end.value), Option.some)),
              Effect.zipRight(Effect.suspend(() => pull))
            )
          : Effect.fail(end)
      )
    )

    const using = (
      use: (attached: Attached) => Effect.Effect<void, OpenSandboxError>
    ): Effect.Effect<void, OpenSandboxError> =>
      usable.whenOpen(
        Effect.suspend(() => {
          if (given !== undefined) return Effect.fail(given)
          const ended = current.attached.ended()
          if (ended === undefined || !isLost(ended)) return use(current.attached)
          // nobody has noticed yet, and nothing was sent
          return Effect.zipRight(usable.close, using(use))
        })
      )

    return {
      mode: current.attached.mode,
      ended: () => given,
      pull,
      write: (data) => using(({ write }) => write(data)),
      resize: (cols, rows) => using(({ resize }) => resize(cols, rows)),
      signal: (name) => using(({ signal }) => signal(name)),
      ping: using(({ ping }) => ping)
    }
  })
