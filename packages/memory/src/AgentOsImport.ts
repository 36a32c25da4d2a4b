/**
 * Conversations out of the SQLite files of AgentOS.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqlStore from "@sandglass/core/SqlStore"
import * as Effect from "effect/Effect"
import { ConversationStoreError } from "./ConversationError.js"
import { Conversations } from "./Conversations.js"
import * as Importing from "./internal/agentOs/importing.js"
import { InvalidInput } from "./MemoryError.js"

/**
 * A row that was not imported, and why.
 *
 * - `orphan`: a message of a conversation that is not in the file
 * - `conflict`: something else has its id in the store, or has that of its conversation
 * - `invalid`: it is no conversation and no message, for example because its metadata is no JSON
 *
 * @since 0.1.0
 * @category models
 */
export interface Problem {
  readonly kind: "orphan" | "conflict" | "invalid"
  readonly table: "conversations" | "messages"
  readonly id: string
  readonly description: string
  /** The columns as they are in the file, so that nothing is lost. */
  readonly row: Readonly<Record<string, unknown>>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Report {
  /** How many conversations were imported. */
  readonly conversations: number
  /** How many messages were imported. */
  readonly messages: number
  /** How many of both were in the store already, from an earlier import. */
  readonly alreadyThere: number
  /** What was not imported; empty where `onProblem` was given. */
  readonly problems: ReadonlyArray<Problem>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options<E = never, R = never> {
  /** Takes what was not imported, one by one. Default: they are collected in the report. */
  readonly onProblem?: ((problem: Problem) => Effect.Effect<void, E, R>) | undefined
}

const method = "AgentOsImport.run"

const fail = ({ cause, description, reason }: SqlStore.SqlFailure) =>
  new ConversationStoreError({ method, reason, description: `the file of AgentOS: ${description}`, cause })

/**
 * Imports all conversations and messages of an AgentOS database into the {@link Conversations} at hand, page by page: of the
 * layout of today, and of that without the two columns for cached tokens. What cannot be imported is reported and does not
 * keep the rest from being so. An import that was interrupted is finished by another one.
 *
 * A `lastActivity` that is earlier than the latest message becomes that message's time. AgentOS stores a token count of 0 as
 * an absent one: where one of a message's counts is there, the absent ones are read as 0.
 *
 * `source` is a client of the SQLite file. `SqliteConversations.importAgentOs` of `@sandglass/sql-sqlite` opens one.
 *
 * @since 0.1.0
 * @category import
 */
export const run = <E = never, R = never>(
  source: SqlClient.SqlClient,
  options: Options<E, R> = {}
): Effect.Effect<Report, E | InvalidInput | ConversationStoreError, R | Conversations> =>
  Effect.gen(function* () {
    const conversations = yield* Conversations
    const { read } = yield* Effect.provideService(SqlStore.make({ fail }), SqlClient.SqlClient, source)
    const tables = yield* read(Importing.tablesText)
    if (tables.length < 2) {
      return yield* new InvalidInput({ method, description: "this is no database of AgentOS: it has not its tables" })
    }
    const problems: Array<Problem> = []
    const onProblem = options.onProblem ?? ((problem: Problem) => Effect.sync(() => void problems.push(problem)))
    const counts = yield* Importing.run(conversations, read, onProblem)
    return { ...counts, problems }
  }).pipe(Effect.withSpan(method, { captureStackTrace: false }))
