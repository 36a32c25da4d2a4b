/**
 * LISTEN and NOTIFY as hints: a listener learns soon that something happened, or a little later by looking for itself.
 */
import type { Connection } from "@effect/sql/SqlConnection"
import type * as PgClient from "@effect/sql-pg/PgClient"
import * as SqlStore from "@sandglass/core/SqlStore"
import * as Cause from "effect/Cause"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as PubSub from "effect/PubSub"
import * as RcRef from "effect/RcRef"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

/** What `pg` calls a client: the connection that a driver's `Connection` stands for. */
interface Session {
  readonly on: (event: string, listener: (argument: unknown) => void) => unknown
  readonly off: (event: string, listener: (argument: unknown) => void) => unknown
  readonly end: () => Promise<unknown>
}

const isSession = (u: unknown): u is Session =>
  Predicate.isObject(u) &&
  ["on", "off", "end"].every((method) => Predicate.hasProperty(u, method) && typeof u[method] === "function")

const sessionOf = (connection: Connection): Session | undefined =>
  Predicate.hasProperty(connection, "pg") && isSession(connection.pg) ? connection.pg : undefined

class Disconnected {
  readonly _tag = "Disconnected"
  constructor(readonly cause?: unknown) {}
}

/** The driver gives no access to what arrives on a connection. */
class Unsupported {
  readonly _tag = "Unsupported"
}

/** How often a connection that hears nothing is asked whether it is still one, and how long it may take to answer. */
const heartbeat = Duration.seconds(10)
const patience = Duration.seconds(5)

/** From the start again after a connection that lasted. */
const reconnecting = Schedule.exponential("100 millis").pipe(
  Schedule.union(Schedule.spaced("10 seconds")),
  Schedule.jittered,
  Schedule.resetAfter("1 minute")
)

const quoted = (channel: string): string => `"${channel.replaceAll('"', '""')}"`

/**
 * Listens until the connection is lost. `heard` runs when it begins, because nobody knows what was said before, and then
 * for each notification.
 *
 * The driver's own `listen` says nothing when its connection is lost. This takes a connection out of the pool, asks it
 * from time to time whether it still answers, which also keeps whatever stands in between from forgetting it, and never
 * gives it back: closed, it is no more than one that the pool makes anew.
 */
const listenOnce = (
  client: PgClient.PgClient,
  channel: string,
  heard: () => void
): Effect.Effect<never, Disconnected | Unsupported> =>
  Effect.scoped(
    Effect.gen(function* () {
      const connection = yield* SqlStore.reserveConnection(client)
      const session = sessionOf(connection)
      if (session === undefined) {
        return yield* Effect.fail(new Unsupported())
      }
      const lost = yield* Deferred.make<never, Disconnected>()
      const onNotification = (message: unknown) => {
        if (Predicate.hasProperty(message, "channel") && message.channel === channel) {
          heard()
        }
      }
      const onEnd = (cause: unknown) => Deferred.unsafeDone(lost, Effect.fail(new Disconnected(cause)))
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          session.on("notification", onNotification)
          session.on("error", onEnd)
          session.on("end", onEnd)
        }),
        () =>
          Effect.sync(() => {
            session.off("notification", onNotification)
            session.off("end", onEnd)
            // The listener for errors stays: nobody else would hear the last one of a connection that is being closed.
            session.end().catch(() => undefined)
          })
      )
      yield* connection.executeUnprepared(`LISTEN ${quoted(channel)}`, [], undefined)
      heard()
      const alive = connection.executeUnprepared("SELECT 1", [], undefined).pipe(
        // The driver cancels what is interrupted, and a dead connection does not even answer to that.
        Effect.disconnect,
        Effect.timeoutFail({ duration: patience, onTimeout: () => new Disconnected() })
      )
      return yield* Effect.raceFirst(
        Deferred.await(lost),
        Effect.forever(Effect.zipRight(Effect.sleep(heartbeat), alive))
      )
    })
  ).pipe(
    Effect.mapError((error) =>
      error._tag === "Disconnected" || error._tag === "Unsupported" ? error : new Disconnected(error.cause)
    ),
    Effect.withTracerEnabled(false)
  )

/**
 * Emits when somebody notified the channel, and whenever listening began (again). It never fails and never ends: without
 * a connection it tries to get another one. All who follow it share one connection, which is there while anybody does.
 */
export const listen = (
  client: PgClient.PgClient,
  channel: string
): Effect.Effect<Stream.Stream<void>, never, Scope.Scope> => {
  // The last connection must not be the one that waits.
  if ((client.config.maxConnections ?? 10) < 2) {
    return Effect.succeed(Stream.never)
  }
  const listening = Effect.gen(function* () {
    // One place that slides: whoever stands still costs nobody anything.
    const heard = yield* PubSub.sliding<void>(1)
    yield* listenOnce(client, channel, () => void heard.unsafeOffer(undefined)).pipe(
      Effect.tapErrorTag("Disconnected", ({ cause }) =>
        Effect.logDebug("Lost the connection that listens for changes", cause === undefined ? "" : Cause.fail(cause))
      ),
      Effect.retry({ schedule: reconnecting, while: ({ _tag }) => _tag === "Disconnected" }),
      Effect.catchTag("Unsupported", () =>
        Effect.logWarning("This Postgres client gives no access to notifications: changes are found by polling alone")
      ),
      Effect.annotateLogs({ package: "@sandglass/sql-pg", module: "notifications" }),
      Effect.interruptible,
      Effect.forkScoped
    )
    return heard
  })
  return Effect.map(RcRef.make({ acquire: listening }), (ref) =>
    Stream.unwrapScoped(
      Effect.gen(function* () {
        const heard = yield* Stream.fromPubSub(yield* RcRef.get(ref), { scoped: true })
        // Nobody told of what was said until now.
        return Stream.concat(Stream.succeed(undefined), heard)
      })
    )
  )
}

/** Statements for one notification after another: a moment of rest lets what happens meanwhile share the next one. */
const rest = Duration.millis(5)

/**
 * An effect that notifies the channel soon, and costs its caller nothing. What is announced while a notification is under
 * way shares the next one. One that the database does not take is lost.
 *
 * A NOTIFY in the transaction that it tells of would make the commits of all processes wait for each other: the database
 * holds a lock from before until after it has flushed them. This one is a transaction of its own that flushes nothing.
 */
export const announcer = (
  client: PgClient.PgClient,
  channel: string
): Effect.Effect<Effect.Effect<void>, never, Scope.Scope> =>
  Effect.gen(function* () {
    let pending = false
    const latch = yield* Effect.makeLatch(false)
    const sql = client.withoutTransforms()
    const notify = Effect.suspend(() => {
      pending = false
      return sql`SELECT set_config('synchronous_commit', 'off', true), pg_notify(${channel}, 'appended')`
    }).pipe(Effect.ignore, Effect.withTracerEnabled(false))
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => (pending ? notify : Effect.void)).pipe(
        Effect.interruptible,
        Effect.disconnect,
        Effect.timeoutOption("1 second")
      )
    )
    yield* latch.await.pipe(
      Effect.zipRight(latch.close),
      Effect.zipRight(notify),
      Effect.zipRight(Effect.sleep(rest)),
      Effect.forever,
      Effect.interruptible,
      Effect.forkScoped
    )
    return Effect.sync(() => {
      pending = true
      latch.unsafeOpen()
    })
  })
