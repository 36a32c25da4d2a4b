import type * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Egress, EgressClient } from "../Egress.js"
import type { Execd } from "../Execd.js"
import type { Checkpoint, Ledger } from "../Ledger.js"
import { LedgerError } from "../LedgerError.js"
import type { Cursor, Json } from "../LedgerEvent.js"
import { EventName } from "../LedgerEvent.js"
import type { CreateRequest, OpenSandbox, Status } from "../OpenSandbox.js"
import { endpointClient } from "../OpenSandbox.js"
import type { OpenSandboxError } from "../OpenSandboxError.js"
import * as Replay from "../Replay.js"
import type { ForkOptions, Sandbox } from "../Sandbox.js"
import { TypeId } from "../Sandbox.js"
import type { SandboxFailure } from "../SandboxError.js"
import { SandboxError } from "../SandboxError.js"
import * as SandboxFiles from "../SandboxFiles.js"
import type { ComposedHooks, HookSandbox } from "../SandboxHooks.js"
import { composeHooks } from "../SandboxHooks.js"
import * as SandboxMetrics from "../SandboxMetrics.js"
import { bounded, within } from "./bounded.js"
import { contextKey } from "./contextKey.js"
import type { ExecContext } from "./exec/context.js"
import * as Detached from "./exec/detached.js"
import * as InternalExec from "./exec/handles.js"
import * as InternalTerminal from "./exec/terminal.js"
import { jsonObject } from "./json.js"
import { labelValue } from "./labels.js"
import { policyToJson } from "./policyJson.js"
import * as SandboxEgress from "./sandboxEgress.js"

/** What all sandboxes of one `Sandboxes` share. */
export interface Services {
  readonly ledger: Context.Tag.Service<Ledger>
  readonly openSandbox: Context.Tag.Service<OpenSandbox>
  readonly execd: Context.Tag.Service<Execd>
  readonly egress: Context.Tag.Service<Egress>
  readonly nextId: Effect.Effect<string>
  readonly permits: { readonly take: Effect.Effect<void>; readonly release: Effect.Effect<void> }
  readonly readyTimeout: Duration.DurationInput
  readonly closeTimeout: Duration.DurationInput
}

/** A session about to begin: on a container to be created, or on one that runs already. */
export interface Session {
  readonly name: string
  readonly runId: string
  readonly resourceId?: string | undefined
  readonly teamId?: string | undefined
  readonly hooks: ComposedHooks
  readonly replay: Replay.ReplayIndex
  readonly onDivergence: "fail" | "live"
  /** The sequence of the last exec that this session has recorded already. */
  readonly lastSeq: number
  /** The sandboxes that it was resumed from, newest first. */
  readonly lineage: ReadonlyArray<string>
  readonly detached: boolean
  /** Fields of `sandbox.created` beside id, run and resources. */
  readonly links: { readonly [key: string]: Json | undefined }
}

/** Looks again with growing pauses until `done` says so. */
const poll = <A, E, E2>(
  self: Effect.Effect<A, E>,
  done: (value: A) => Effect.Effect<boolean, E2>
): Effect.Effect<A, E | E2> => {
  const go = (pause: number): Effect.Effect<A, E | E2> =>
    Effect.flatMap(self, (value) =>
      Effect.flatMap(done(value), (yes) =>
        yes
          ? Effect.succeed(value)
          : Effect.zipRight(
              Effect.sleep(pause),
              Effect.suspend(() => go(Math.min(pause * 1.5, 2000)))
            )
      )
    )
  return go(5)
}

const statusText = (status: Status<string>) =>
  [status.state, status.reason, status.message].filter((part) => part !== undefined && part !== "").join(": ")

/** Waits for a state of the container; states it does not know count as "not yet". */
const awaitState = (
  services: Services,
  method: string,
  sandboxId: string,
  wanted: string
): Effect.Effect<void, SandboxFailure> =>
  poll(services.openSandbox.get(sandboxId), ({ status }) => {
    if (status.state === wanted) return Effect.succeed(true)
    return status.state === "Failed" || status.state === "Terminated" || status.state === "Stopping"
      ? Effect.fail(new SandboxError({ method, reason: "StartFailed", description: statusText(status), sandboxId }))
      : Effect.succeed(false)
  }).pipe(
    Effect.catchIf(
      (error): error is OpenSandboxError => error._tag === "OpenSandboxError" && error.reason === "NotFound",
      (cause) =>
        Effect.fail(
          new SandboxError({ method, reason: "StartFailed", description: "it no longer exists", sandboxId, cause })
        )
    ),
    notLongerThan(
      services.readyTimeout,
      () =>
        new SandboxError({ method, reason: "NotReady", description: `it did not become ${wanted} in time`, sandboxId })
    )
  )

const notLongerThan =
  <E2>(timeout: Duration.DurationInput, onTimeout: () => E2) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | E2, R> =>
    Effect.timeoutFail(self, { duration: timeout, onTimeout })

const awaitReady = (services: Services, method: string, context: ExecContext): Effect.Effect<void, SandboxFailure> =>
  context.execd.ready({ timeout: services.readyTimeout }).pipe(
    Effect.mapError(
      (cause) =>
        new SandboxError({
          method,
          reason: "NotReady",
          description: `no command could be run in it: ${cause.message}`,
          sandboxId: context.sandbox.id,
          cause
        })
    )
  )

/** A snapshot that is still being made cannot be deleted yet. */
const retryWhileBusy = (remove: Effect.Effect<void, OpenSandboxError>): Effect.Effect<void, OpenSandboxError> =>
  Effect.retry(remove, { while: (error) => error.reason === "Conflict", schedule: Schedule.spaced("200 millis") })

/** A ready snapshot; one that is not handed out is deleted. */
const snapshot = (
  services: Services,
  sandboxId: string,
  name: string | undefined
): Effect.Effect<string, SandboxFailure> =>
  Effect.gen(function* () {
    const { openSandbox } = services
    const asking = yield* Effect.forkDaemon(Effect.interruptible(openSandbox.createSnapshot(sandboxId, { name })))
    const made = yield* Effect.onInterrupt(Fiber.join(asking), () =>
      // What the server may have begun is taken back when its answer comes.
      Effect.forkDaemon(
        Effect.flatMap(Fiber.join(asking), ({ id }) =>
          bounded("deleting a snapshot", services.readyTimeout, retryWhileBusy(openSandbox.deleteSnapshot(id)))
        )
      )
    )
    const failure = (description: string) =>
      new SandboxError({ method: "Sandbox.checkpoint", reason: "SnapshotFailed", description, sandboxId })
    const ready =
      made.status.state === "Ready"
        ? Effect.void
        : poll(openSandbox.getSnapshot(made.id), ({ status }) =>
            status.state === "Failed" || status.state === "Deleting"
              ? Effect.fail(failure(statusText(status)))
              : Effect.succeed(status.state === "Ready")
          )
    yield* ready.pipe(
      notLongerThan(services.readyTimeout, () => failure("the snapshot was not ready in time")),
      Effect.onError(() =>
        bounded("deleting a snapshot", services.closeTimeout, retryWhileBusy(openSandbox.deleteSnapshot(made.id)))
      )
    )
    return made.id
  })

/** Where the session stands: what completed up to here is part of a snapshot that is asked for now. */
const lastEntry = (services: Services, sandboxId: string): Effect.Effect<Cursor | undefined, LedgerError> =>
  services.ledger
    .read({ sandboxId, order: "desc", limit: 1 })
    .pipe(Stream.runHead, Effect.map(Option.match({ onNone: () => undefined, onSome: ({ id, ts }) => ({ ts, id }) })))

/** Takes a snapshot and records it, with the place in the ledger up to which it certainly holds what execs did. */
const checkpoint = (services: Services, context: ExecContext, hooks: ComposedHooks, tag: string | undefined) =>
  Effect.gen(function* () {
    const { id, name } = context.sandbox
    const completedUntil = yield* lastEntry(services, id)
    const snapshotId = yield* snapshot(services, id, tag)
    const payload = jsonObject({
      snapshotId,
      name: tag,
      completedUntil: completedUntil === undefined ? undefined : { ...completedUntil }
    })
    // Whether it was recorded decides whether the snapshot stays, so an interruption must not cut the two apart: the record ends by
    // itself, and takes the snapshot back only if it has certainly failed.
    const recording = yield* services.ledger
      .append({ sandboxId: id, name, event: EventName.checkpointCreated, payload })
      .pipe(
        Effect.tapErrorCause(() =>
          bounded("deleting a snapshot", services.closeTimeout, services.openSandbox.deleteSnapshot(snapshotId))
        ),
        Effect.interruptible,
        Effect.forkDaemon
      )
    const entry = yield* Fiber.join(recording)
    const made: Checkpoint = {
      sandboxId: id,
      name,
      snapshotId,
      ...(tag === undefined ? {} : { tag }),
      cursor: { ts: entry.ts, id: entry.id },
      payload
    }
    yield* hooks.onCheckpoint(context.sandbox, made)
    return made
  })

/** What `resources` of the create request are when the caller names none. */
export const defaultResources = { cpu: "500m", memory: "512Mi" }

const span =
  (name: string, sandboxId: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withSpan(self, name, { captureStackTrace: false, attributes: { "sandbox.id": sandboxId } })

/** Where closing stands; shared by the handle and its finalizer. */
interface Lifetime {
  closed: boolean
  recorded: boolean
  /** `sandbox.created`, on its way. */
  recording: Fiber.Fiber<unknown, unknown> | undefined
  readonly closing: Deferred.Deferred<void>
}

const newLifetime = (recorded: boolean): Effect.Effect<Lifetime> =>
  Effect.map(Deferred.make<void>(), (closing) => ({ closed: false, recorded, recording: undefined, closing }))

const closing = (
  services: Services,
  session: Session,
  sandbox: HookSandbox,
  lifetime: Lifetime
): Effect.Effect<Effect.Effect<void>> =>
  Effect.cached(
    Effect.gen(function* () {
      lifetime.closed = true
      yield* Deferred.succeed(lifetime.closing, void 0)
      const deleted = yield* services.openSandbox.delete(sandbox.id).pipe(within(services.closeTimeout), Effect.exit)
      if (Exit.isFailure(deleted)) yield* Effect.logWarning(`sandbox ${sandbox.id} could not be deleted`, deleted.cause)
      if (lifetime.recording !== undefined) {
        yield* bounded("recording sandbox.created", services.closeTimeout, Fiber.await(lifetime.recording))
      }
      if (lifetime.recorded) {
        yield* bounded(
          "recording sandbox.closed",
          services.closeTimeout,
          services.ledger.append({
            sandboxId: sandbox.id,
            name: sandbox.name,
            event: EventName.sandboxClosed,
            ...(Exit.isFailure(deleted) ? { error: "the container could not be deleted" } : {})
          })
        )
        yield* session.hooks.onClosed(sandbox)
      }
    }).pipe(
      Effect.ensuring(services.permits.release),
      // A caller that is interrupted while closing must not leave it half done for the next one.
      Effect.uninterruptible,
      span("Sandbox.close", sandbox.id)
    )
  )

/** Stops what was to be stopped while the sandbox was paused. */
const stopRest = (services: Services, { unstopped }: ExecContext): Effect.Effect<void> => {
  const rest = [...unstopped]
  unstopped.clear()
  return Effect.forEach(rest, (stop) => bounded("stopping a command", services.closeTimeout, stop), { discard: true })
}

const reserved: ReadonlySet<string> = new Set(Object.values(EventName))

/** How a fork is made: as its parent, but for what is given, and for what belongs to the parent's source. */
const forkRequest = (parent: CreateRequest, options: ForkOptions, snapshotId: string): CreateRequest => {
  const { detached: _detached, hooks: _hooks, name: _name, resourceId: _resourceId, ...given } = options
  const { image: _image, metadata: _metadata, snapshotId: _snapshotId, ...inherited } = parent
  const known = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  const { poolRef: _poolRef, ...extensions } = inherited.extensions ?? {}
  return {
    ...inherited,
    extensions: Object.keys(extensions).length === 0 ? undefined : extensions,
    ...known,
    snapshotId
  }
}

const handle = (
  services: Services,
  /** What it was created with, as far as that is known. */
  request: CreateRequest,
  session: Session,
  context: ExecContext,
  egress: EgressClient,
  lifetime: Lifetime,
  close: Effect.Effect<void>
): Sandbox => {
  const { ledger, openSandbox } = services
  const { id, name } = context.sandbox
  const open = <A, E, R>(method: string, self: Effect.Effect<A, E, R>): Effect.Effect<A, E | SandboxError, R> =>
    Effect.suspend(
      (): Effect.Effect<A, E | SandboxError, R> =>
        lifetime.closed
          ? Effect.fail(
              new SandboxError({ method, reason: "Closed", description: "the sandbox is closed", sandboxId: id })
            )
          : self
    ).pipe(span(method, id))

  return {
    [TypeId]: TypeId,
    [contextKey]: context,
    id,
    name,
    runId: session.runId,
    resourceId: session.resourceId,
    teamId: session.teamId,
    exec: (command, options) => InternalExec.make(context, command, options),
    start: (command, options) => InternalExec.start(context, command, options),
    openTerminal: (options) => InternalTerminal.openTerminal(context, options),
    execCode: (code, options) => InternalExec.makeCode(context, code, options),
    createCodeContext: (language) =>
      open("Sandbox.createCodeContext", InternalExec.createCodeContext(context, language)),
    startDetached: (command, options) => Detached.startDetached(context, command, options),
    commands: Detached.commands(context),
    createSession: (options) => open("Sandbox.createSession", InternalExec.createSession(context, options)),
    files: SandboxFiles.make(context.execd),
    checkpoint: (tag) =>
      open(
        "Sandbox.checkpoint",
        tag === ""
          ? Effect.fail(
              new SandboxError({
                method: "Sandbox.checkpoint",
                reason: "InvalidOptions",
                description: "an empty tag",
                sandboxId: id
              })
            )
          : checkpoint(services, context, session.hooks, tag)
      ),
    fork: (options) =>
      open(
        "Sandbox.fork",
        Effect.gen(function* () {
          for (const field of ["name", "resourceId"] as const) {
            if (options?.[field]?.trim() !== "") continue
            return yield* new SandboxError({
              method: "Sandbox.fork",
              reason: "InvalidOptions",
              description: `${field} is blank`,
              sandboxId: id
            })
          }
          const { snapshotId } = yield* checkpoint(services, context, session.hooks, undefined)
          const forkName = options?.name ?? `fork-${name}-${(yield* services.nextId).slice(0, 8)}`
          return yield* begin(services, forkRequest(request, options ?? {}, snapshotId), {
            ...session,
            name: forkName,
            resourceId: options?.resourceId ?? session.resourceId,
            hooks: options?.hooks === undefined ? session.hooks : composeHooks(session.hooks, options.hooks),
            replay: Replay.empty,
            lastSeq: 0,
            lineage: [],
            detached: options?.detached ?? false,
            links: { snapshotId, forkedFrom: snapshotId, parentSandboxId: id }
          })
        })
      ),
    pause: open(
      "Sandbox.pause",
      openSandbox
        .pause(id)
        .pipe(
          Effect.zipRight(awaitState(services, "Sandbox.pause", id, "Paused")),
          Effect.zipRight(ledger.append({ sandboxId: id, name, event: EventName.sandboxPaused })),
          Effect.asVoid
        )
    ),
    resume: open(
      "Sandbox.resume",
      openSandbox.resume(id).pipe(
        Effect.zipRight(awaitState(services, "Sandbox.resume", id, "Running")),
        // Ports and tokens are new after a pause.
        Effect.zipRight(context.execd.invalidate),
        Effect.zipRight(egress.invalidate),
        Effect.zipRight(awaitReady(services, "Sandbox.resume", context)),
        Effect.zipRight(Effect.suspend(() => stopRest(services, context))),
        Effect.zipRight(ledger.append({ sandboxId: id, name, event: EventName.sandboxResumed })),
        Effect.asVoid
      )
    ),
    renew: (duration) => open("Sandbox.renew", openSandbox.renew(id, duration)),
    info: openSandbox.get(id),
    proxy: (port) =>
      Effect.map(openSandbox.endpoint(id, port), (endpoint) => ({
        ...endpoint,
        client: endpointClient(openSandbox.httpClient, endpoint)
      })),
    egress: SandboxEgress.make(context, egress),
    execd: context.execd,
    metrics: context.execd.metrics,
    watchMetrics: Stream.interruptWhen(context.execd.watchMetrics, Deferred.await(lifetime.closing)),
    diagnosticLogs: (scope = "all") => openSandbox.diagnosticLogs(id, scope),
    diagnosticEvents: (scope = "all") => openSandbox.diagnosticEvents(id, scope),
    append: (event, payload, options) =>
      reserved.has(event)
        ? Effect.fail(
            new LedgerError({
              method: "append",
              reason: "InvalidEvent",
              description: `${event} is an event of our own`
            })
          )
        : ledger.append({ sandboxId: id, name, event, payload, stepIdx: options?.stepIdx, branch: options?.branch }),
    history: ledger.read({ sandboxId: id }),
    close
  }
}

const makeContext = (
  services: Services,
  session: Session,
  sandboxId: string,
  lifetime: Lifetime
): Effect.Effect<ExecContext> =>
  Effect.gen(function* () {
    return {
      sandbox: {
        id: sandboxId,
        name: session.name,
        runId: session.runId,
        resourceId: session.resourceId,
        teamId: session.teamId
      },
      ledger: services.ledger,
      execd: yield* services.execd.connect(sandboxId),
      hooks: session.hooks,
      replay: yield* Ref.make(session.replay),
      onDivergence: session.onDivergence,
      sequence: { last: session.lastSeq, sessions: 0 },
      lineage: session.lineage,
      nextId: services.nextId,
      keyUses: new Map(),
      divergence: { keys: undefined },
      unstopped: new Set(),
      isClosed: () => lifetime.closed,
      closed: lifetime.closing
    }
  })

const recordCreated = (
  services: Services,
  session: Session,
  context: ExecContext,
  lifetime: Lifetime,
  { networkPolicy, resources }: Pick<CreateRequest, "networkPolicy" | "resources">
) =>
  services.ledger
    .append({
      sandboxId: context.sandbox.id,
      name: session.name,
      event: EventName.sandboxCreated,
      payload: jsonObject({
        sandboxId: context.sandbox.id,
        resources,
        networkPolicy: networkPolicy === undefined ? undefined : policyToJson(networkPolicy),
        runId: session.runId,
        resourceId: session.resourceId,
        teamId: session.teamId,
        ...session.links
      })
    })
    .pipe(
      Effect.tap(() =>
        Effect.sync(() => {
          lifetime.recorded = true
        })
      ),
      // It ends by itself, whoever interrupts: closing waits for it to know whether there is a session to close.
      Effect.interruptible,
      Effect.forkDaemon,
      Effect.tap((recording) =>
        Effect.sync(() => {
          lifetime.recording = recording
        })
      ),
      Effect.flatMap(Fiber.join)
    )

/** One more sandbox is open, until it is closed or its scope is, whatever comes first. */
const counted = (services: Services): Effect.Effect<Services, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { release, take } = services.permits
    const leave = yield* Effect.once(Effect.zipRight(Metric.incrementBy(SandboxMetrics.sandboxesLive, -1), release))
    yield* Effect.acquireRelease(
      Effect.zipRight(Effect.interruptible(take), Metric.increment(SandboxMetrics.sandboxesLive)),
      () => leave
    )
    return { ...services, permits: { take, release: leave } }
  })

/** Creates a container and begins a session on it. */
export const begin = (
  services: Services,
  request: CreateRequest,
  session: Session
): Effect.Effect<Sandbox, SandboxFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const lifetime = yield* newLifetime(false)
    let ready = false
    const owned = yield* counted(services)
    // A pool has its own.
    const resources = request.resources ?? (request.extensions?.poolRef === undefined ? defaultResources : undefined)
    const { close, context } = yield* Effect.acquireRelease(
      Effect.gen(function* () {
        const info = yield* Effect.interruptible(
          services.openSandbox.create({
            ...request,
            resources,
            metadata: {
              "sandglass.name": labelValue(session.name),
              "sandglass.run-id": labelValue(session.runId),
              ...request.metadata
            }
          })
        )
        const context = yield* makeContext(services, session, info.id, lifetime)
        return { context, close: yield* closing(owned, session, context.sandbox, lifetime) }
      }),
      ({ close }) => (session.detached && ready ? Effect.void : close)
    )
    yield* awaitState(services, "Sandboxes.create", context.sandbox.id, "Running")
    yield* recordCreated(services, session, context, lifetime, { ...request, resources })
    yield* awaitReady(services, "Sandboxes.create", context)
    yield* session.hooks.onCreated(context.sandbox)
    const egress = yield* services.egress.connect(context.sandbox.id)
    // Nothing that could be interrupted comes between this and the handle: a detached sandbox that nobody got would be left behind.
    ready = true
    return handle(services, request, session, context, egress, lifetime, close)
  })

/** Takes up a session on a container that runs already. */
export const attach = (
  services: Services,
  sandboxId: string,
  session: Session,
  recorded: boolean
): Effect.Effect<Sandbox, SandboxFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const lifetime = yield* newLifetime(recorded)
    const context = yield* makeContext(services, session, sandboxId, lifetime)
    yield* services.openSandbox.get(sandboxId).pipe(
      Effect.catchIf(
        (error) => error.reason === "NotFound",
        (cause) =>
          new SandboxError({
            method: "Sandboxes.connect",
            reason: "NotFound",
            description: "the server has no such sandbox",
            sandboxId,
            cause
          })
      )
    )
    yield* awaitState(services, "Sandboxes.connect", sandboxId, "Running")
    yield* awaitReady(services, "Sandboxes.connect", context)
    if (!recorded) yield* recordCreated(services, session, context, lifetime, {})
    // Somebody else's container: the cap is on those that were created here.
    const owned = yield* counted({ ...services, permits: { take: Effect.void, release: Effect.void } })
    const close = yield* closing(owned, session, context.sandbox, lifetime)
    if (!session.detached) yield* Effect.addFinalizer(() => close)
    return handle(services, {}, session, context, yield* services.egress.connect(context.sandbox.id), lifetime, close)
  })
