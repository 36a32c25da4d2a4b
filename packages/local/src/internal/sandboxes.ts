/** @internal */

import * as Fs from "node:fs"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import type { ApiError } from "./apiError.js"
import { conflict, runtimeError, sandboxNotFound } from "./apiError.js"
import type { Codes } from "./codes.js"
import { makeCodes } from "./codes.js"
import type { Command, Commands } from "./commands.js"
import { makeCommands } from "./commands.js"
import type { Policy } from "./egress.js"
import { Egress } from "./egress.js"
import { iso } from "./http.js"
import { secret, uuid } from "./ids.js"
import type { Instance, Isolation } from "./isolation.js"
import { Journal } from "./journal.js"
import type { PipePool } from "./pipes.js"
import { ToolError } from "./process.js"
import type { Processes } from "./processes.js"
import { makeProcesses } from "./processes.js"
import type { Sessions } from "./sessions.js"
import { makeSessions } from "./sessions.js"
import type { Snapshots } from "./snapshots.js"
import type { Relay } from "./terminal/relays.js"
import type { Terminals } from "./terminals.js"
import { makeTerminals } from "./terminals.js"

export interface Status {
  readonly state: string
  readonly reason: string
  readonly message: string
  readonly lastTransitionAt: number
}

export interface SandboxSpec {
  readonly image: unknown
  readonly snapshotId: string | undefined
  readonly entrypoint: readonly [string, ...Array<string>]
  readonly env: { readonly [name: string]: string }
  readonly metadata: { readonly [key: string]: string }
  readonly platform: unknown
  readonly resourceLimits: unknown
  readonly extensions: unknown
  readonly timeoutSeconds: number | undefined
  readonly policy: Policy | undefined
  readonly credentialProxy: boolean
  readonly secureAccess: boolean
}

export interface Sandbox {
  readonly id: string
  readonly spec: SandboxSpec
  readonly createdAt: number
  readonly instance: Instance
  readonly journal: Journal
  readonly egress: Egress
  /** Where it runs, which some have no need for. */
  entrypoint: Command | undefined
  readonly processes: Processes
  readonly commands: Commands
  readonly codes: Codes
  readonly sessions: Sessions
  readonly terminals: Terminals
  /** Holds `layers`, `logs` and the mount points. */
  readonly directory: string
  readonly scope: Scope.CloseableScope
  /** One at a time: pause, resume, snapshot, delete. */
  readonly lock: Effect.Semaphore
  /** Closed while the files must stand still. */
  readonly open: Effect.Latch
  /** Taken by whatever works on the files. */
  readonly slots: Effect.Semaphore
  /** It is to be deleted: whatever waits for something in it need not wait any longer. */
  readonly doomed: Deferred.Deferred<void>
  /** It has been deleted. */
  readonly gone: Deferred.Deferred<void>
  metadata: { readonly [key: string]: string }
  expiresAt: number | undefined
  status: Status
  /** What requests to execd must carry; a new one after each resume. */
  token: string
  egressToken: string
  /** What requests to its ports must carry, with secure access. */
  readonly accessToken: string
}

/** Requests of one sandbox that may run at once, before one that needs all of them at rest. */
const SLOTS = 1024

/** How long a snapshot waits for requests to come to rest; an interpreter that starts may take half of it. */
const REST_MILLIS = 60_000

/** How long a deletion waits for what it has interrupted. */
const INTERRUPT_MILLIS = 2000

export interface Sandboxes {
  readonly create: (spec: SandboxSpec) => Effect.Effect<Sandbox, ApiError>
  readonly get: (id: string) => Effect.Effect<Sandbox, ApiError>
  readonly list: Effect.Effect<ReadonlyArray<Sandbox>>
  readonly remove: (id: string) => Effect.Effect<void, ApiError>
  readonly pause: (id: string) => Effect.Effect<void, ApiError>
  readonly resume: (id: string) => Effect.Effect<void, ApiError>
  readonly renew: (id: string, expiresAt: number) => Effect.Effect<Sandbox, ApiError>
  readonly snapshot: (id: string, name: string | undefined) => ReturnType<Snapshots["create"]>
  /** Runs something that starts commands or changes files: not while a snapshot is being taken. It must not wait for a client. */
  readonly working: <A, E, R>(sandbox: Sandbox, effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | ApiError, R>
  /** Runs something that may take as long as a client likes: interrupted when the sandbox is deleted. */
  readonly attended: <A, E, R>(sandbox: Sandbox, effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | ApiError, R>
}

export interface SandboxesOptions {
  readonly isolation: Isolation
  readonly pipes: PipePool
  readonly directory: string
  readonly snapshots: Snapshots
  /** What makes terminals on this machine; undefined where nothing does. */
  readonly relay: Effect.Effect<Relay | undefined>
}

export const fromTool = (what: string) => (error: ToolError) => runtimeError(`${what}: ${error.tool}: ${error.message}`)

export const makeSandboxes = (options: SandboxesOptions): Effect.Effect<Sandboxes, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { isolation, pipes, snapshots } = options
    const clock = yield* Effect.clock
    const sandboxes = new Map<string, Sandbox>()
    const serverScope = yield* Effect.scope

    const status = (state: string, reason: string, message: string): Status => ({
      state,
      reason,
      message,
      lastTransitionAt: clock.unsafeCurrentTimeMillis()
    })

    const get = (id: string) =>
      Effect.suspend(() => {
        const sandbox = sandboxes.get(id)
        return sandbox === undefined ? Effect.fail(sandboxNotFound(id)) : Effect.succeed(sandbox)
      })

    const destroy = (sandbox: Sandbox): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (!sandboxes.has(sandbox.id)) return Effect.void
        sandbox.status = status("Stopping", "USER_DELETE", "The sandbox is being deleted")
        return Effect.gen(function* () {
          yield* Deferred.succeed(sandbox.doomed, undefined)
          // What waits outside for a process in the sandbox, and was stopped with it, would keep that from being seen to end. It is not killed at
          // once, since then the machine's first process would have to do it, which may take seconds.
          const { close, release } = sandbox.processes
          yield* release
          yield* Effect.raceFirst(
            sandbox.instance.destroy,
            Effect.interruptible(Effect.zipRight(Effect.delay(close, "250 millis"), Effect.never))
          )
          yield* close
          yield* sandbox.commands.close
          yield* sandbox.codes.close
          yield* sandbox.sessions.close
          yield* sandbox.terminals.close
          yield* Scope.close(sandbox.scope, Exit.void)
          sandboxes.delete(sandbox.id)
          yield* removeDirectory(sandbox.directory)
        }).pipe(Effect.uninterruptible)
      })

    const removeDirectory = (directory: string) =>
      isolation
        .removeTree(directory)
        .pipe(
          Effect.catchAll((error) => Effect.logWarning(`sandglass-local: cannot remove ${directory}: ${error.message}`))
        )

    const attended: Sandboxes["attended"] = (sandbox, effect) =>
      Effect.raceFirst(
        effect,
        Effect.zipRight(Deferred.await(sandbox.doomed), Effect.fail(sandboxNotFound(sandbox.id)))
      )

    /** Checked again where something was waited for. */
    const unlessDoomed = <A, E, R>(
      sandbox: Sandbox,
      effect: Effect.Effect<A, E, R>
    ): Effect.Effect<A, E | ApiError, R> =>
      Effect.zipRight(
        Effect.flatMap(Deferred.isDone(sandbox.doomed), (doomed) =>
          doomed ? Effect.fail(sandboxNotFound(sandbox.id)) : Effect.void
        ),
        effect
      )

    const working: Sandboxes["working"] = (sandbox, effect) =>
      attended(sandbox, sandbox.open.whenOpen(sandbox.slots.withPermits(1)(unlessDoomed(sandbox, effect))))

    const locked = <A>(id: string, use: (sandbox: Sandbox) => Effect.Effect<A, ApiError>) =>
      Effect.flatMap(get(id), (sandbox) =>
        attended(
          sandbox,
          sandbox.lock.withPermits(1)(
            unlessDoomed(
              sandbox,
              Effect.suspend(() => use(sandbox))
            )
          )
        )
      )

    /** Does not wait its turn: what holds the lock is interrupted, and what waits for it fails. Goes on without whoever asked for it. */
    const remove = (id: string) =>
      Effect.flatMap(get(id), (sandbox) =>
        Effect.flatMap(Deferred.succeed(sandbox.doomed, undefined), (first) => {
          const gone = Effect.interruptible(Deferred.await(sandbox.gone))
          if (!first) return Effect.zipRight(gone, Effect.fail(sandboxNotFound(id)))
          sandbox.status = status("Stopping", "USER_DELETE", "The sandbox is being deleted")
          return Effect.raceFirst(sandbox.lock.take(1), Effect.sleep(INTERRUPT_MILLIS)).pipe(
            Effect.interruptible,
            Effect.zipRight(destroy(sandbox)),
            Effect.ensuring(Deferred.succeed(sandbox.gone, undefined)),
            Effect.forkIn(serverScope),
            Effect.zipRight(gone)
          )
        }).pipe(Effect.uninterruptible)
      )

    const inState = (sandbox: Sandbox, wanted: string, action: string) =>
      sandbox.status.state === wanted
        ? Effect.void
        : Effect.fail(
            conflict(
              "LOCAL::INVALID_SANDBOX_STATE",
              `Cannot ${action} sandbox ${sandbox.id}: it is ${sandbox.status.state}, not ${wanted}`
            )
          )

    /** Deletes the sandbox when its time has come, however often that was put off meanwhile. */
    const expire = (sandbox: Sandbox): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (sandbox.expiresAt === undefined || !sandboxes.has(sandbox.id)) return Effect.void
        const left = sandbox.expiresAt - clock.unsafeCurrentTimeMillis()
        return left > 0
          ? Effect.zipRight(Effect.sleep(Math.min(left, 2 ** 31 - 1)), expire(sandbox))
          : Effect.ignore(Effect.forkIn(Effect.ignore(remove(sandbox.id)), serverScope))
      })

    const create = (spec: SandboxSpec) =>
      Effect.gen(function* () {
        const id = uuid()
        const directory = `${options.directory}/${id}`
        const layers = `${directory}/layers`
        const createdAt = clock.unsafeCurrentTimeMillis()
        const scope = yield* Scope.make()
        const undo = Effect.zipRight(Scope.close(scope, Exit.void), removeDirectory(directory))
        const sandbox = yield* Effect.gen(function* () {
          for (const path of [layers, `${directory}/logs`, `${directory}/work`]) Fs.mkdirSync(path, { recursive: true })
          if (spec.snapshotId !== undefined) yield* snapshots.restore(spec.snapshotId, layers)
          const instance = yield* isolation
            .create({ id, directory, layers })
            .pipe(Effect.mapError(fromTool("The sandbox could not be started")))
          const journal = new Journal(() => clock.unsafeCurrentTimeMillis())
          journal.note("runtime", `isolation: ${isolation.mode}, ${isolation.description}`)
          const processes = makeProcesses({ instance, env: spec.env, journal })
          const commands = yield* makeCommands({ instance, processes, pipes, logs: `${directory}/logs` }).pipe(
            Scope.extend(scope)
          )
          const sessions = yield* makeSessions({
            instance,
            processes,
            pipes,
            directory: `${directory}/logs`,
            env: spec.env
          }).pipe(Scope.extend(scope))
          const codes = yield* makeCodes({ instance, processes, pipes })
          const { relay } = options
          const terminals = yield* makeTerminals({ instance, processes, pipes, env: spec.env, relay }).pipe(
            Scope.extend(scope)
          )
          const sandbox: Sandbox = {
            id,
            spec,
            createdAt,
            instance,
            journal,
            egress: new Egress(spec.policy, spec.credentialProxy),
            entrypoint: undefined,
            processes,
            commands,
            codes,
            sessions,
            terminals,
            directory,
            scope,
            lock: yield* Effect.makeSemaphore(1),
            open: yield* Effect.makeLatch(true),
            slots: yield* Effect.makeSemaphore(SLOTS),
            doomed: yield* Deferred.make<void>(),
            gone: yield* Deferred.make<void>(),
            metadata: spec.metadata,
            expiresAt: spec.timeoutSeconds === undefined ? undefined : createdAt + spec.timeoutSeconds * 1000,
            status: status("Running", "CONTAINER_RUNNING", "The sandbox is running"),
            token: secret(),
            egressToken: secret(),
            accessToken: secret()
          }
          return sandbox
        }).pipe(Effect.tapErrorCause(() => undo))
        sandboxes.set(id, sandbox)
        sandbox.journal.note(
          "lifecycle",
          `created${spec.snapshotId === undefined ? "" : ` from snapshot ${spec.snapshotId}`}`
        )
        if (sandbox.expiresAt !== undefined) yield* Effect.forkIn(Effect.interruptible(expire(sandbox)), scope)
        yield* Effect.forkIn(Effect.interruptible(watch(sandbox)), scope)
        if (!idle(spec.entrypoint)) {
          yield* sandbox.commands.startEntrypoint(spec.entrypoint).pipe(
            Effect.tap((command) =>
              Effect.sync(() => {
                sandbox.entrypoint = command
              })
            ),
            Effect.catchAll((error) => Effect.logWarning(`sandglass-local: entrypoint of ${id}: ${error.message}`))
          )
        }
        return sandbox
      }).pipe(Effect.uninterruptible)

    const watch = (sandbox: Sandbox) =>
      Effect.map(sandbox.instance.died, () => {
        if (sandbox.status.state !== "Stopping") {
          sandbox.journal.note("lifecycle", "failed: the first process is gone")
          sandbox.status = status("Failed", "RUNTIME_ERROR", "The sandbox's first process is gone")
        }
      })

    const pause = (id: string) =>
      locked(id, (sandbox) =>
        inState(sandbox, "Running", "pause").pipe(
          Effect.zipRight(sandbox.instance.freeze),
          Effect.catchTag("ToolError", (error) => Effect.fail(fromTool("pause")(error))),
          Effect.tap(() =>
            Effect.sync(() => {
              sandbox.journal.note("lifecycle", "paused")
              sandbox.status = status("Paused", "USER_PAUSE", "The sandbox is paused")
            })
          ),
          Effect.uninterruptible
        )
      )

    const resume = (id: string) =>
      locked(id, (sandbox) =>
        inState(sandbox, "Paused", "resume").pipe(
          Effect.zipRight(sandbox.instance.thaw),
          Effect.zipRight(sandbox.processes.nudge),
          Effect.catchTag("ToolError", (error) => Effect.fail(fromTool("resume")(error))),
          Effect.tap(() =>
            Effect.sync(() => {
              sandbox.token = secret()
              sandbox.journal.note("lifecycle", "resumed")
              sandbox.status = status("Running", "CONTAINER_RUNNING", "The sandbox is running")
            })
          ),
          Effect.uninterruptible
        )
      )

    const renew = (id: string, expiresAt: number) =>
      Effect.flatMap(get(id), (sandbox) => {
        const timed = sandbox.expiresAt !== undefined
        sandbox.expiresAt = expiresAt
        sandbox.journal.note("lifecycle", `to expire at ${iso(expiresAt)}`)
        return timed ? Effect.succeed(sandbox) : Effect.as(Effect.forkIn(expire(sandbox), sandbox.scope), sandbox)
      })

    /** With the sandbox's processes stopped, where it has any, and nothing of ours at work on its files. Interrupted when it is deleted. */
    const still =
      (sandbox: Sandbox) =>
      (effect: Effect.Effect<void, ToolError>): Effect.Effect<void, ToolError> =>
        Effect.suspend(() => {
          let resting = false
          const failed = (message: string) => new ToolError({ tool: "snapshot", message })
          const whenAtRest = sandbox.slots.withPermits(SLOTS)(
            Effect.suspend(() => {
              resting = true
              return sandbox.processes.busy() || sandbox.instance.hasProcesses()
                ? Effect.acquireUseRelease(
                    sandbox.instance.freeze,
                    () => effect,
                    () => Effect.zipRight(Effect.ignoreLogged(sandbox.instance.thaw), sandbox.processes.nudge)
                  )
                : effect
            })
          )
          const tooLong = Effect.flatMap(Effect.sleep(REST_MILLIS), () =>
            resting
              ? Effect.never
              : Effect.fail(failed("what was going on in the sandbox did not come to rest in time"))
          )
          return Effect.raceFirst(whenAtRest, tooLong).pipe((taken) =>
            Effect.raceFirst(
              taken,
              Effect.zipRight(Deferred.await(sandbox.doomed), Effect.fail(failed("the sandbox was deleted meanwhile")))
            )
          )
        })

    const snapshot: Sandboxes["snapshot"] = (id, name) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const sandbox = yield* get(id)
          yield* restore(attended(sandbox, sandbox.lock.take(1)))
          const done = Effect.zipRight(sandbox.open.open, sandbox.lock.release(1))
          return yield* unlessDoomed(
            sandbox,
            Effect.suspend(() => inState(sandbox, "Running", "snapshot"))
          ).pipe(
            // From here on, before the request is answered, so that nothing started after the answer is in the snapshot.
            Effect.zipRight(sandbox.open.close),
            Effect.tapError(() => sandbox.lock.release(1)),
            Effect.tap(() => Effect.sync(() => sandbox.journal.note("lifecycle", "snapshot requested"))),
            Effect.zipRight(
              snapshots.create({
                sandboxId: id,
                name,
                entrypoint: sandbox.spec.entrypoint,
                copy: (target) => still(sandbox)(isolation.copyTree(`${sandbox.directory}/layers`, target)),
                done
              })
            )
          )
        })
      )

    // Stopped and continued from inside is not seen from outside otherwise.
    yield* Effect.suspend(() =>
      Effect.forEach(
        sandboxes.values(),
        (sandbox) => (sandbox.status.state === "Running" ? sandbox.processes.nudge : Effect.void),
        { discard: true }
      )
    ).pipe(Effect.delay("1 second"), Effect.forever, Effect.forkScoped)

    yield* Effect.addFinalizer(() =>
      Effect.suspend(() =>
        Effect.forEach([...sandboxes.values()], destroy, { concurrency: 8, discard: true }).pipe(
          Effect.interruptible,
          Effect.timeout("20 seconds"),
          Effect.ignoreLogged
        )
      )
    )

    return {
      create,
      get,
      list: Effect.sync(() => [...sandboxes.values()]),
      remove,
      pause,
      resume,
      renew,
      snapshot,
      working,
      attended
    }
  })

/** Entrypoints that only keep a container alive need no process of their own here. */
const idle = (entrypoint: ReadonlyArray<string>): boolean =>
  /^(tail -f \/dev\/null|sleep (infinity|inf|\d+))$/.test(entrypoint.join(" "))
