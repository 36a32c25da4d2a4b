/**
 * Callbacks along the life of sandboxes. A hook that fails, dies or hangs is logged and left behind: it harms neither its
 * siblings nor the operation it watches.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import { bounded } from "./internal/bounded.js"
import type { Checkpoint } from "./Ledger.js"

/**
 * What every hook is told.
 *
 * @since 0.1.0
 * @category models
 */
export interface HookSandbox {
  readonly id: string
  readonly name: string
  readonly runId: string
  readonly resourceId?: string | undefined
  readonly teamId?: string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SandboxHooks {
  /** After `sandbox.created` is in the ledger. */
  readonly onCreated?: ((sandbox: HookSandbox) => Effect.Effect<unknown, unknown>) | undefined
  /** After `sandbox.closed` is in the ledger. */
  readonly onClosed?: ((sandbox: HookSandbox) => Effect.Effect<unknown, unknown>) | undefined
  readonly onCheckpoint?:
    | ((sandbox: HookSandbox, checkpoint: Checkpoint) => Effect.Effect<unknown, unknown>)
    | undefined
  /** A command was recorded and is about to run. Not called for a replayed one. */
  readonly onExecStarted?:
    | ((
        sandbox: HookSandbox,
        exec: { readonly seq: number; readonly command: string }
      ) => Effect.Effect<unknown, unknown>)
    | undefined
  /** A command's exit code was recorded. Not called for a replayed one. */
  readonly onExecCompleted?:
    | ((
        sandbox: HookSandbox,
        exec: { readonly seq: number; readonly command: string; readonly exitCode: number }
      ) => Effect.Effect<unknown, unknown>)
    | undefined
  /** A command ended without an exit code. `reason` as in `exec.failed`, e.g. `interrupted`. */
  readonly onExecFailed?:
    | ((
        sandbox: HookSandbox,
        exec: { readonly seq: number; readonly command: string; readonly reason: string }
      ) => Effect.Effect<unknown, unknown>)
    | undefined
}

/** How long a hook may take before it is left behind. */
const hookTimeout = "5 seconds"

const guard = (name: string, hook: Effect.Effect<unknown, unknown>): Effect.Effect<void> =>
  bounded(`sandbox hook ${name}`, hookTimeout, hook)

const compose = <Args extends ReadonlyArray<unknown>>(
  name: string,
  hooks: ReadonlyArray<((...args: Args) => Effect.Effect<unknown, unknown>) | undefined>
): ((...args: Args) => Effect.Effect<void>) => {
  const present = hooks.filter((hook) => hook !== undefined)
  if (present.length === 0) return () => Effect.void
  return (...args) =>
    Effect.forEach(
      present,
      (hook) =>
        guard(
          name,
          Effect.suspend(() => hook(...args))
        ),
      { discard: true }
    )
}

/**
 * Hooks in which every callback is safe to call.
 *
 * @since 0.1.0
 * @category models
 */
export interface ComposedHooks {
  readonly onCreated: (sandbox: HookSandbox) => Effect.Effect<void>
  readonly onClosed: (sandbox: HookSandbox) => Effect.Effect<void>
  readonly onCheckpoint: (sandbox: HookSandbox, checkpoint: Checkpoint) => Effect.Effect<void>
  readonly onExecStarted: (
    sandbox: HookSandbox,
    exec: { readonly seq: number; readonly command: string }
  ) => Effect.Effect<void>
  readonly onExecCompleted: (
    sandbox: HookSandbox,
    exec: { readonly seq: number; readonly command: string; readonly exitCode: number }
  ) => Effect.Effect<void>
  readonly onExecFailed: (
    sandbox: HookSandbox,
    exec: { readonly seq: number; readonly command: string; readonly reason: string }
  ) => Effect.Effect<void>
}

/**
 * Joins hooks into one: each callback runs those given, one after another; whatever one of them does, the others run. A hook
 * has five seconds.
 *
 * @since 0.1.0
 * @category combinators
 */
export const composeHooks = (...hooks: ReadonlyArray<SandboxHooks | undefined>): ComposedHooks => ({
  onCreated: compose(
    "onCreated",
    hooks.map((_) => _?.onCreated)
  ),
  onClosed: compose(
    "onClosed",
    hooks.map((_) => _?.onClosed)
  ),
  onCheckpoint: compose(
    "onCheckpoint",
    hooks.map((_) => _?.onCheckpoint)
  ),
  onExecStarted: compose(
    "onExecStarted",
    hooks.map((_) => _?.onExecStarted)
  ),
  onExecCompleted: compose(
    "onExecCompleted",
    hooks.map((_) => _?.onExecCompleted)
  ),
  onExecFailed: compose(
    "onExecFailed",
    hooks.map((_) => _?.onExecFailed)
  )
})
