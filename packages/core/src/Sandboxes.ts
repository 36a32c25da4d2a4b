/**
 * Creates, resumes and finds sandboxes, and records them in the ledger.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Egress from "./Egress.js"
import * as Execd from "./Execd.js"
import { IdGenerator } from "./IdGenerator.js"
import { jsonField } from "./internal/json.js"
import * as Keyed from "./internal/keyed.js"
import { labelValue } from "./internal/labels.js"
import { policyFromJson } from "./internal/policyJson.js"
import * as InternalSandbox from "./internal/sandbox.js"
import type { Checkpoint, SandboxDetails, SandboxFilter } from "./Ledger.js"
import { Ledger } from "./Ledger.js"
import type { LedgerError } from "./LedgerError.js"
import { EventName } from "./LedgerEvent.js"
import type { CreateRequest, SandboxInfo } from "./OpenSandbox.js"
import { OpenSandbox } from "./OpenSandbox.js"
import type { OpenSandboxError } from "./OpenSandboxError.js"
import * as Replay from "./Replay.js"
import type { Sandbox } from "./Sandbox.js"
import type { SandboxFailure } from "./SandboxError.js"
import { SandboxError } from "./SandboxError.js"
import type { SandboxHooks } from "./SandboxHooks.js"
import { composeHooks } from "./SandboxHooks.js"

/**
 * What every way to a new container takes. `resources`, `env`, `timeout`, `metadata`, `entrypoint` and `extensions` go to the
 * server as they are.
 *
 * @since 0.1.0
 * @category models
 */
export interface SessionOptions extends Omit<CreateRequest, "image" | "snapshotId"> {
  /** Sandboxes of one purpose share a name. Default: `sandbox`, or the name of what it continues. */
  readonly name?: string | undefined
  /** Default: a random id, or that of what it continues. */
  readonly runId?: string | undefined
  /** Who the work is for: a durable identity that outlives sandboxes. Default: that of what it continues, if any. */
  readonly resourceId?: string | undefined
  /** The team within which `resourceId` is meant. Default: that of what it continues, if any. */
  readonly teamId?: string | undefined
  /** True: the container outlives the scope, until it is closed or its `timeout` has passed. Default false. */
  readonly detached?: boolean | undefined
  /** In addition to those of the Layer. */
  readonly hooks?: SandboxHooks | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CreateOptions extends SessionOptions {
  /** An image reference such as `node:22`, with credentials for a private registry. Left out only with `extensions.poolRef`. */
  readonly image?: CreateRequest["image"]
  /**
   * The same key, from whichever process, finds the container of an earlier create that still exists and attaches to it, instead of
   * making another one. Of two that are made at the same time the younger is deleted again.
   */
  readonly idempotencyKey?: string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ResumeOptions extends SessionOptions {
  /** The newest checkpoint with this tag. Default: the newest checkpoint. */
  readonly tag?: string | undefined
  /**
   * When the program asks for another command than the recorded one: `fail` (default) with `ReplayDivergence`, or run `live`
   * from there on.
   */
  readonly onDivergence?: "fail" | "live" | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ConnectOptions {
  /** The session's name where the ledger does not know the sandbox. Default `sandbox`. */
  readonly name?: string | undefined
  /** Its run, where the ledger does not know the sandbox. Default: a random id. */
  readonly runId?: string | undefined
  /** Who the work is for, where the ledger does not know the sandbox. */
  readonly resourceId?: string | undefined
  readonly teamId?: string | undefined
  /** False: closing the scope closes the sandbox. Default true: it is left running, as it was found. */
  readonly detached?: boolean | undefined
  readonly hooks?: SandboxHooks | undefined
}

/**
 * How to make an environment: what is worth keeping of a container after a long set-up.
 *
 * @since 0.1.0
 * @category models
 */
export interface EnvironmentDefinition<E = never, R = never> {
  readonly name: string
  readonly image: string
  /** True: builds it anew, as after a change of `build`, which is not noticed by itself. Default false. */
  readonly rebuild?: boolean | undefined
  /** Runs once, in a sandbox of that image; what it leaves there is the environment. */
  readonly build: (sandbox: Sandbox) => Effect.Effect<unknown, E, R>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How many sandboxes may be open at once; more wait, in order. Default: no cap. A fork waits like any other. */
  readonly maxConcurrent?: number | undefined
  /** How long a container may take to start, to become ready, or to be snapshotted. Default 2 minutes. */
  readonly readyTimeout?: Duration.DurationInput | undefined
  /** How long closing may take. Default 10 seconds. */
  readonly closeTimeout?: Duration.DurationInput | undefined
  /** For every sandbox. */
  readonly hooks?: SandboxHooks | undefined
}

/**
 * Every sandbox comes in a `Scope`: leaving it deletes the container and records `sandbox.closed`, on success, failure and
 * interruption, within a bounded time.
 *
 * @example
 * ```ts
 * import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const sandboxes = yield* Sandboxes.Sandboxes
 *   const sandbox = yield* sandboxes.create({ image: "node:22", name: "ci" })
 *   yield* sandbox.exec("npm ci")
 *   yield* sandbox.checkpoint("installed")
 *   const { stdout } = yield* sandbox.exec("npm test")
 *   return stdout
 * }).pipe(
 *   Effect.scoped,
 *   Effect.provide(Sandboxes.layer),
 *   Effect.provide(OpenSandbox.layerConfig()),
 *   Effect.provide(Ledger.layerMemory)
 * )
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class Sandboxes extends Context.Tag("@sandglass/core/Sandboxes")<
  Sandboxes,
  {
    readonly create: (options: CreateOptions) => Effect.Effect<Sandbox, SandboxFailure, Scope.Scope>
    /** Attaches to a sandbox that runs already, made by whomever, and goes on with its session. */
    readonly connect: (
      sandboxId: string,
      options?: ConnectOptions
    ) => Effect.Effect<Sandbox, SandboxFailure, Scope.Scope>
    /**
     * A new container from a checkpoint of a session, and a new session that continues it: execs that had completed before the
     * checkpoint are answered from the ledger, the next ones run live. Its resources and its network policy are those that the other one was created with,
     * unless others are given.
     */
    readonly resume: (sandboxId: string, options?: ResumeOptions) => Effect.Effect<Sandbox, SandboxFailure, Scope.Scope>
    /** A new container from a snapshot, in a session that replays nothing. */
    readonly restoreSnapshot: (
      snapshotId: string,
      options?: SessionOptions
    ) => Effect.Effect<Sandbox, SandboxFailure, Scope.Scope>
    /**
     * A new container from a prepared environment. The environment is built when it is first asked for (once, however many ask),
     * and again when its snapshot is gone or the definition's image has changed; its snapshot is kept in the ledger.
     */
    readonly environment: <E, R>(
      definition: EnvironmentDefinition<E, R>,
      options?: SessionOptions
    ) => Effect.Effect<Sandbox, SandboxFailure | E, Scope.Scope | R>
    /** Sessions of the ledger, newest first. */
    readonly list: (filter?: SandboxFilter) => Stream.Stream<SandboxDetails, LedgerError>
    readonly get: (sandboxId: string) => Effect.Effect<Option.Option<SandboxDetails>, LedgerError>
    /** Deletes a container, whoever made it, and records `sandbox.closed`: for what a killed process left behind. */
    readonly close: (sandboxId: string) => Effect.Effect<void, SandboxFailure>
    /**
     * Removes a session from the ledger; returns how many entries it had. Refused with `StillRunning` while its container
     * exists, unless `force` is given, which closes it first.
     */
    readonly delete: (
      sandboxId: string,
      options?: { readonly force?: boolean | undefined }
    ) => Effect.Effect<number, SandboxFailure>
  }
>() {}

const span =
  (name: string) =>
  <E, R>(self: Effect.Effect<Sandbox, E, R>): Effect.Effect<Sandbox, E, R> =>
    self.pipe(
      Effect.tap(({ id }) => Effect.annotateCurrentSpan("sandbox.id", id)),
      Effect.withSpan(name, { captureStackTrace: false })
    )

const spanOf =
  (name: string, sandboxId: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withSpan(self, name, { captureStackTrace: false, attributes: { "sandbox.id": sandboxId } })

const isNotFound = (error: { readonly _tag: string; readonly reason: string }) =>
  error._tag === "OpenSandboxError" && error.reason === "NotFound"

const isOlder = (a: SandboxInfo, b: SandboxInfo): boolean =>
  (a.createdAt ?? 0) < (b.createdAt ?? 0) || ((a.createdAt ?? 0) === (b.createdAt ?? 0) && a.id < b.id)

/** The metadata by which a create of the same key finds what the first one made. */
const idempotencyLabel = "sandglass.idempotency-key"

/** The request's part of the options. */
const requestOf = (options: SessionOptions): CreateRequest => {
  const {
    detached: _detached,
    hooks: _hooks,
    name: _name,
    resourceId: _resourceId,
    runId: _runId,
    teamId: _teamId,
    ...request
  } = options
  return request
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options = {}
): Effect.Effect<Context.Tag.Service<Sandboxes>, never, OpenSandbox | Execd.Execd | Egress.Egress | Ledger> =>
  Effect.gen(function* () {
    const ledger = yield* Ledger
    const openSandbox = yield* OpenSandbox
    const execd = yield* Execd.Execd
    const ids = yield* IdGenerator
    const semaphore =
      options.maxConcurrent === undefined
        ? undefined
        : yield* Effect.makeSemaphore(Math.max(1, Math.floor(options.maxConcurrent)))
    const services: InternalSandbox.Services = {
      ledger,
      openSandbox,
      execd,
      egress: yield* Egress.Egress,
      nextId: ids.next,
      permits:
        semaphore === undefined
          ? { take: Effect.void, release: Effect.void }
          : { take: Effect.asVoid(semaphore.take(1)), release: Effect.asVoid(semaphore.release(1)) },
      readyTimeout: options.readyTimeout ?? "2 minutes",
      closeTimeout: options.closeTimeout ?? "10 seconds"
    }
    const oneAtATime = yield* Keyed.make

    const invalid = (method: string, description: string) =>
      new SandboxError({ method, reason: "InvalidOptions", description })

    /** What a session inherits from the one that it continues, and its options override. */
    const session = (
      method: string,
      own: SessionOptions,
      from: SandboxDetails | undefined,
      rest: Pick<InternalSandbox.Session, "links"> & Partial<InternalSandbox.Session>
    ): Effect.Effect<InternalSandbox.Session, SandboxError> =>
      Effect.gen(function* () {
        for (const field of ["name", "runId", "resourceId", "teamId"] as const) {
          if (own[field]?.trim() === "") return yield* invalid(method, `${field} is blank`)
        }
        return {
          name: own.name ?? from?.name ?? "sandbox",
          runId: own.runId ?? from?.runId ?? (yield* ids.next),
          resourceId: own.resourceId ?? from?.resourceId,
          teamId: own.teamId ?? from?.teamId,
          hooks: composeHooks(options.hooks, own.hooks),
          detached: own.detached ?? false,
          replay: Replay.empty,
          onDivergence: "fail",
          lastSeq: 0,
          lineage: [],
          ...rest
        }
      })

    const createNew = (own: CreateOptions) =>
      Effect.gen(function* () {
        const { idempotencyKey, image, metadata, ...rest } = own
        const uri = typeof image === "object" ? image.uri : image
        return yield* InternalSandbox.begin(
          services,
          {
            ...requestOf(rest),
            image,
            metadata:
              idempotencyKey === undefined ? metadata : { ...metadata, [idempotencyLabel]: labelValue(idempotencyKey) }
          },
          yield* session("Sandboxes.create", own, undefined, { links: { image: uri, idempotencyKey } })
        )
      })

    const known = (sandboxId: string) => Effect.map(ledger.sandbox(sandboxId), Option.getOrUndefined)

    /** The oldest container that a create of this key made, if one still exists. */
    const madeBefore = (key: string) =>
      openSandbox.list({ metadata: { [idempotencyLabel]: labelValue(key) } }).pipe(
        Stream.filter(
          ({ metadata, status }) =>
            // A server that ignores the filter answers with everybody's.
            metadata[idempotencyLabel] === labelValue(key) &&
            !["Stopping", "Terminated", "Failed"].includes(status.state)
        ),
        // One whose deletion failed, or is not over, is nobody's any more.
        Stream.filterEffect(({ id }) => Effect.map(known(id), (details) => details?.status !== "closed")),
        Stream.runFold(Option.none<SandboxInfo>(), (oldest, info) =>
          Option.isSome(oldest) && !isOlder(info, oldest.value) ? oldest : Option.some(info)
        )
      )

    const create = (own: CreateOptions): Effect.Effect<Sandbox, SandboxFailure, Scope.Scope> => {
      const key = own.idempotencyKey
      if (key === undefined) return createNew(own)
      if (key.trim() === "") return Effect.fail(invalid("Sandboxes.create", "idempotencyKey is blank"))
      const { detached = false, hooks, name, resourceId, runId, teamId } = own
      const join = ({ id }: SandboxInfo) => connect(id, { name, runId, resourceId, teamId, hooks, detached })
      return oneAtATime(
        `create ${key}`,
        Effect.gen(function* () {
          const before = yield* madeBefore(key)
          if (Option.isSome(before)) return yield* join(before.value)
          const made = yield* createNew(own)
          // Another process may have looked when there was nothing to be seen: whichever container is older is kept.
          const first = yield* Effect.onError(madeBefore(key), () => made.close)
          if (Option.isNone(first) || first.value.id === made.id) return made
          yield* made.close
          return yield* join(first.value)
        })
      )
    }

    /** Started in an order that may differ a little from that of their sequences: the newest few are looked at. */
    const lastSeq = (sandboxId: string, details: SandboxDetails | undefined) =>
      Effect.gen(function* () {
        const own = yield* ledger
          .read({ sandboxId, events: [EventName.execStarted], withoutOutput: true, order: "desc", limit: 100 })
          .pipe(Stream.runFold(0, (last, entry) => Math.max(last, entry.stepIdx)))
        // What a resumed session replayed is not written in it again.
        return details?.resumedFrom === undefined
          ? own
          : Math.max(own, yield* Replay.inheritedSequence(ledger, sandboxId))
      })

    /** What a sandbox was resumed from, newest first. */
    const ancestors = (details: SandboxDetails | undefined) =>
      Effect.gen(function* () {
        const ids: Array<string> = []
        for (let parent = details?.resumedFrom; parent !== undefined && !ids.includes(parent); ) {
          ids.push(parent)
          parent = (yield* known(parent))?.resumedFrom
        }
        return ids
      })

    const connect = (sandboxId: string, own: ConnectOptions = {}) =>
      Effect.gen(function* () {
        const details = yield* known(sandboxId)
        if (details?.status === "closed") {
          return yield* new SandboxError({
            method: "Sandboxes.connect",
            reason: "Closed",
            description: "the ledger says that it was closed",
            sandboxId
          })
        }
        const { hooks, name, resourceId, runId, teamId } = own
        const base = {
          ...(details === undefined ? { name, runId, resourceId, teamId } : {}),
          hooks,
          detached: own.detached ?? true
        }
        return yield* InternalSandbox.attach(
          services,
          sandboxId,
          yield* session("Sandboxes.connect", base, details, {
            links: { attached: true },
            lastSeq: yield* lastSeq(sandboxId, details),
            lineage: yield* ancestors(details)
          }),
          details !== undefined
        )
      })

    /** The policy that a session was created with. */
    const policyOf = (sandboxId: string) =>
      ledger.read({ sandboxId, events: [EventName.sandboxCreated], withoutOutput: true, limit: 1 }).pipe(
        Stream.runHead,
        Effect.map((entry) => policyFromJson(jsonField(Option.getOrUndefined(entry)?.payload, "networkPolicy")))
      )

    const continued = (checkpoint: Checkpoint, details: SandboxDetails, own: ResumeOptions) =>
      Effect.gen(function* () {
        const { onDivergence, tag: _tag, ...rest } = own
        return yield* InternalSandbox.begin(
          services,
          {
            resources: details.resources,
            ...requestOf(rest),
            networkPolicy: own.networkPolicy ?? (yield* policyOf(details.sandboxId)),
            snapshotId: checkpoint.snapshotId
          },
          yield* session("Sandboxes.resume", rest, details, {
            links: { snapshotId: checkpoint.snapshotId, resumedFrom: checkpoint.sandboxId },
            replay: yield* Replay.load(ledger, checkpoint),
            lineage: [checkpoint.sandboxId, ...(yield* ancestors(yield* known(checkpoint.sandboxId)))],
            onDivergence: onDivergence ?? "fail"
          })
        )
      })

    const resume = (sandboxId: string, own: ResumeOptions = {}) =>
      Effect.gen(function* () {
        const found = yield* Replay.findCheckpoint(ledger, sandboxId, own.tag)
        if (Option.isNone(found)) {
          return yield* new SandboxError({
            method: "Sandboxes.resume",
            reason: "NoCheckpoint",
            description: own.tag === undefined ? "it has no checkpoint" : `it has no checkpoint tagged ${own.tag}`,
            sandboxId
          })
        }
        const details = yield* known(sandboxId)
        if (details === undefined) {
          return yield* new SandboxError({
            method: "Sandboxes.resume",
            reason: "NotFound",
            description: "the ledger holds no session of this id",
            sandboxId
          })
        }
        return yield* continued(found.value, details, own)
      })

    const restoreSnapshot = (snapshotId: string, own: SessionOptions = {}) =>
      Effect.gen(function* () {
        const info = yield* openSandbox.getSnapshot(snapshotId)
        const details = yield* known(info.sandboxId)
        return yield* InternalSandbox.begin(
          services,
          {
            resources: details?.resources,
            ...requestOf(own),
            networkPolicy: own.networkPolicy ?? (details === undefined ? undefined : yield* policyOf(info.sandboxId)),
            snapshotId
          },
          yield* session("Sandboxes.restoreSnapshot", own, details, {
            links: { snapshotId, fromSnapshot: snapshotId }
          })
        )
      })

    /** Builds the environment in a sandbox of its own, which is closed before the snapshot is used. */
    const buildEnvironment = <E, R>(definition: EnvironmentDefinition<E, R>, own: SessionOptions) =>
      Effect.gen(function* () {
        const sandbox = yield* create({
          ...requestOf(own),
          image: definition.image,
          name: `environment-${definition.name}`,
          runId: own.runId,
          resourceId: own.resourceId,
          teamId: own.teamId
        })
        yield* definition.build(sandbox)
        const { cursor, snapshotId } = yield* sandbox.checkpoint()
        yield* ledger.putEnvironment({
          name: definition.name,
          snapshotId,
          image: definition.image,
          builtAt: cursor.ts
        })
        return snapshotId
      }).pipe(Effect.scoped)

    /** The snapshot that the ledger has for it, if the server still has that and the definition's image is the same. */
    const builtEnvironment = (definition: { readonly name: string; readonly image: string }) =>
      Effect.gen(function* () {
        const record = Option.getOrUndefined(yield* ledger.environment(definition.name))
        if (record === undefined || record.image !== definition.image) return undefined
        const state = yield* openSandbox.getSnapshot(record.snapshotId).pipe(
          Effect.map((info) => info.status.state),
          Effect.catchIf(isNotFound, () => Effect.succeed("Deleting"))
        )
        return state === "Failed" || state === "Deleting" ? undefined : record.snapshotId
      })

    const environment = <E, R>(definition: EnvironmentDefinition<E, R>, own: SessionOptions = {}) =>
      Effect.gen(function* () {
        if (definition.name.trim() === "" || definition.image.trim() === "") {
          return yield* invalid("Sandboxes.environment", "name and image must not be blank")
        }
        const snapshotId = yield* oneAtATime(
          `environment ${definition.name}`,
          Effect.flatMap(builtEnvironment(definition), (found) =>
            found === undefined ? buildEnvironment(definition, own) : Effect.succeed(found)
          )
        )
        return yield* InternalSandbox.begin(
          services,
          { ...requestOf(own), snapshotId },
          yield* session("Sandboxes.environment", own, undefined, {
            links: { image: definition.image, snapshotId, fromEnvironment: definition.name }
          })
        )
      })

    const close = (sandboxId: string) =>
      Effect.gen(function* () {
        const details = yield* known(sandboxId)
        yield* openSandbox.delete(sandboxId)
        if (details === undefined || details.status === "closed") return
        yield* ledger.append({ sandboxId, name: details.name, event: EventName.sandboxClosed })
      })

    const exists = (sandboxId: string): Effect.Effect<boolean, OpenSandboxError> =>
      openSandbox.get(sandboxId).pipe(
        Effect.map((info) => info.status.state !== "Terminated" && info.status.state !== "Failed"),
        Effect.catchIf(isNotFound, () => Effect.succeed(false))
      )

    const remove = (sandboxId: string, own: { readonly force?: boolean | undefined } = {}) =>
      Effect.gen(function* () {
        const details = yield* known(sandboxId)
        if (details !== undefined && details.status !== "closed") {
          if (own.force === true) yield* openSandbox.delete(sandboxId)
          else if (yield* exists(sandboxId)) {
            return yield* new SandboxError({
              method: "Sandboxes.delete",
              reason: "StillRunning",
              description: "its container exists; close it first, or give force",
              sandboxId
            })
          }
        }
        return yield* ledger.deleteSandbox(sandboxId, { force: true })
      })

    return Sandboxes.of({
      create: (own) => span("Sandboxes.create")(create(own)),
      connect: (sandboxId, own) => spanOf("Sandboxes.connect", sandboxId)(connect(sandboxId, own)),
      resume: (sandboxId, own) => spanOf("Sandboxes.resume", sandboxId)(resume(sandboxId, own)),
      restoreSnapshot: (snapshotId, own) => span("Sandboxes.restoreSnapshot")(restoreSnapshot(snapshotId, own)),
      environment: (definition, own) => span("Sandboxes.environment")(environment(definition, own)),
      list: (filter) => ledger.sandboxes(filter),
      get: (sandboxId) => ledger.sandbox(sandboxId),
      close: (sandboxId) => spanOf("Sandboxes.close", sandboxId)(close(sandboxId)),
      delete: (sandboxId, own) => spanOf("Sandboxes.delete", sandboxId)(remove(sandboxId, own))
    })
  })

/**
 * `layer` with options.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<Sandboxes, never, OpenSandbox | Ledger> =>
  Layer.provide(Layer.effect(Sandboxes, make(options)), Layer.merge(Execd.layer, Egress.layer))

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Sandboxes, never, OpenSandbox | Ledger> = layerWith({})
