import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Writable } from "../../Exec.js"
import { ExecError } from "../../SandboxError.js"
import type { ExecContext, Spec } from "./context.js"

/** What output was written to has failed. */
export const pipeError = (context: ExecContext, spec: Spec, seq: number, cause: unknown): ExecError =>
  new ExecError({
    sandboxId: context.sandbox.id,
    seq,
    command: spec.command,
    reason: "Pipe",
    description: cause instanceof Error ? cause.message : String(cause),
    stdout: "",
    stderr: "",
    cause
  })

interface Writer {
  readonly write: (text: string) => Effect.Effect<void, unknown>
  readonly release: () => void
}

const makeWriter = (target: Writable): Writer => {
  let broken: { readonly cause: unknown } | undefined
  const waiting = new Set<(cause: unknown) => void>()
  const onBroken = (cause: unknown) => {
    broken ??= { cause }
    for (const tell of [...waiting]) tell(cause)
    waiting.clear()
  }
  const onClose = () => onBroken("the stream was closed")
  target.on?.("error", onBroken)
  target.on?.("close", onClose)
  return {
    write: (text) =>
      Effect.async((resume) => {
        if (broken !== undefined) return resume(Effect.fail(broken.cause))
        const tell = (cause: unknown) => resume(Effect.fail(cause))
        waiting.add(tell)
        try {
          target.write(text, (error) => {
            waiting.delete(tell)
            if (error) onBroken(error)
            resume(error ? Effect.fail(error) : Effect.void)
          })
        } catch (cause) {
          onBroken(cause)
        }
      }),
    release: () => {
      target.off?.("close", onClose)
      // A stream that failed emits its error after it has told the callback, and without a listener that would end the process.
      if (broken === undefined) target.off?.("error", onBroken)
    }
  }
}

/** Writes to a Node writable, one piece after another; a stream that breaks in between fails the write that waits for it. */
export const writerTo = (
  target: Writable
): Effect.Effect<(text: string) => Effect.Effect<void, unknown>, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => makeWriter(target)),
    ({ release }) => Effect.sync(release)
  ).pipe(Effect.map(({ write }) => write))
