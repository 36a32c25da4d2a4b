/**
 * The one place that connects to a database: every way to fail is a typed failure, none of them tells the password, and
 * none of them takes for ever.
 */
import { inspect } from "node:util"
import * as SqlClient from "@effect/sql/SqlClient"
import { SqlError } from "@effect/sql/SqlError"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type { Options } from "../PgConnection.js"

/** There is no connection. `description` says where to and why. */
export class ConnectFailure extends Data.TaggedError("ConnectFailure")<{
  readonly description: string
  readonly cause?: unknown
}> {}

interface Place {
  /** For people: no password in it. */
  readonly name: string
  /** Texts that nobody must read. */
  readonly secrets: ReadonlyArray<string>
}

const hidden = "<redacted>"

const withoutSecrets = (text: string, { secrets }: Place): string =>
  secrets.reduce((clean, secret) => clean.split(secret).join(hidden), text)

/** As the driver reads it: what is no escape sequence stands for itself. */
const parseUrl = (text: string): URL | undefined => {
  try {
    const url = new URL(/ |%(?![a-f0-9]{2})/i.test(text) ? encodeURI(text).replace(/%25([a-f0-9]{2})/gi, "%$1") : text)
    decodeURIComponent(url.username)
    decodeURIComponent(url.password)
    decodeURIComponent(url.pathname)
    return /^postgres(?:ql)?:$/.test(url.protocol) ? url : undefined
  } catch {
    return undefined
  }
}

const isSocketPath = (text: string): boolean => text.startsWith("/") || text.startsWith("socket:")

const nameOf = (host: string | undefined, port: number | string | undefined, database: string | undefined): string =>
  `${host === undefined || host === "" ? "the default host" : host}${port === undefined || port === "" ? "" : `:${port}`}` +
  (database === undefined || database === "" ? "" : `/${database}`)

const placeOf = (options: Options): Effect.Effect<Place, ConnectFailure> => {
  if (options.url === undefined) {
    return Effect.succeed({ name: nameOf(options.host, options.port, options.database), secrets: [] })
  }
  const text = Redacted.value(options.url)
  if (isSocketPath(text)) {
    return Effect.succeed({ name: "the given socket", secrets: [text] })
  }
  const url = parseUrl(text)
  // What the parser says about it would show the URL itself.
  return url === undefined
    ? Effect.fail(new ConnectFailure({ description: "the given URL is not of the form postgres://user:password@host" }))
    : Effect.succeed({
        name: nameOf(url.searchParams.get("host") ?? url.hostname, url.port, url.pathname.slice(1)),
        secrets: [text, url.href, ...(url.password === "" ? [] : [`:${url.password}@`])]
      })
}

/** What went wrong, in the database's or the system's words. */
const reasonOf = (cause: unknown): string => {
  if (cause instanceof AggregateError && cause.errors.length > 0) {
    return Array.from(new Set(cause.errors.map(reasonOf))).join("; ")
  }
  if (cause instanceof Error && cause.message !== "") {
    return cause.message
  }
  return Predicate.hasProperty(cause, "code") ? String(cause.code) : String(cause)
}

const innermost = (error: unknown): unknown => (error instanceof SqlError && error.cause ? error.cause : error)

const failure = (place: Place, error: unknown): ConnectFailure => {
  const cause = innermost(error)
  const shown = inspect(cause, { depth: 8 })
  return new ConnectFailure({
    description: `cannot connect to ${place.name}: ${withoutSecrets(reasonOf(cause), place)}`,
    ...(withoutSecrets(shown, place) === shown ? { cause } : undefined)
  })
}

/**
 * A client of the database, closed with the scope. It has connected once: a wrong address or password is a failure of
 * this effect.
 */
export const make = (options: Options): Effect.Effect<PgClient.PgClient, ConnectFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const place = yield* placeOf(options)
    const timeout = Duration.decode(options.connectTimeout ?? "10 seconds")
    const context = yield* Layer.build(
      PgClient.layer({
        url: options.url,
        host: options.host,
        port: options.port,
        database: options.database,
        username: options.username,
        password: options.password,
        ssl: options.ssl,
        maxConnections: options.maxConnections ?? 10,
        minConnections: options.minConnections,
        // A little more, so that it is us who say that the time is over: the driver says something else.
        connectTimeout: Duration.sum(timeout, "100 millis"),
        idleTimeout: options.idleTimeout,
        connectionTTL: options.connectionTTL,
        applicationName: options.applicationName ?? "sandglass"
      })
    ).pipe(
      Effect.mapError((error) => failure(place, error)),
      // What the driver throws.
      Effect.catchAllDefect((defect) => Effect.fail(failure(place, defect))),
      // The driver cannot be interrupted while it connects, and a server may accept a connection and say no more.
      Effect.disconnect,
      Effect.timeoutFail({
        duration: timeout,
        onTimeout: () =>
          new ConnectFailure({
            description: `cannot connect to ${place.name}: no answer within ${Duration.format(timeout)}`
          })
      })
    )
    return Context.get(context, PgClient.PgClient)
  })

/** The client under the tags of the driver's own Layer. */
export const toContext = (client: PgClient.PgClient): Context.Context<PgClient.PgClient | SqlClient.SqlClient> =>
  Context.add(Context.make(PgClient.PgClient, client), SqlClient.SqlClient, client)
