/**
 * Whether what is given makes sense, and the row that it is stored as. Checks what the types promise, too: messages come
 * from plain JavaScript, and from models.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as StoredText from "@sandglass/core/StoredText"
import type { NonEmptyReadonlyArray } from "effect/Array"
import * as Arr from "effect/Array"
import * as Either from "effect/Either"
import type { Conversation, ConversationMessage, Role, TokenUsage } from "../../Conversation.js"
import { maxIdBytes, maxJsonDepth } from "../../Conversation.js"
import type {
  ConversationChanges,
  ConversationQuery,
  ConversationRow,
  MessageQuery,
  MessageRow
} from "../../ConversationStore.js"
import type { ListOptions, MessageOptions } from "../../Conversations.js"
import { toConversation, toMessage } from "./rows.js"

/** What is given makes no sense, and why. */
export class Refusal {
  constructor(readonly description: string) {}
}

/** What is stored, and what it is answered with: absent fields left out, JSON as it will be read back. */
export interface Checked<Row, Value> {
  readonly row: Row
  readonly value: Value
}

type Fields = { readonly [key: string]: unknown }

type Mutable<A> = { -readonly [K in keyof A]: A[K] }

const refuse = (description: string): never => {
  throw new Refusal(description)
}

/** Runs checks that refuse by throwing. */
export const checked = <A>(check: () => A): Either.Either<A, Refusal> => {
  try {
    return Either.right(check())
  } catch (error) {
    if (error instanceof Refusal) {
      return Either.left(error)
    }
    throw error
  }
}

const describe = (value: unknown): string =>
  typeof value === "string"
    ? JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value)
    : typeof value === "object" && value !== null
      ? Array.isArray(value)
        ? "an array"
        : "an object"
      : typeof value === "function"
        ? "a function"
        : String(value)

const fieldsOf = (value: unknown, what: string): Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? // Any object can be asked for any field.
      (value as Fields)
    : refuse(`${what} is ${describe(value)}`)

/** A field that nobody knows would be lost without a word. */
const knownFields = (fields: Fields, known: ReadonlySet<string>, what: string): void => {
  for (const key in fields) {
    if (!known.has(key) && fields[key] !== undefined) {
      refuse(`${what} has an unknown field ${describe(key)}`)
    }
  }
}

const utf8 = new TextEncoder()

const tooLong = (id: string): boolean => id.length * 3 > maxIdBytes && utf8.encode(id).length > maxIdBytes

const id = (value: unknown, name: string): string => {
  if (typeof value !== "string" || value === "") {
    return refuse(`${name} is ${value === "" ? "empty" : describe(value)}`)
  }
  const stored = StoredText.encode(value)
  return tooLong(stored) ? refuse(`${name} is longer than ${maxIdBytes} bytes`) : stored
}

/** An id that is looked for. One that cannot be stored is not found. */
export const lookup = (value: unknown, name: string): string =>
  typeof value === "string" ? StoredText.encode(value) : refuse(`${name} is ${describe(value)}`)

const text = (value: unknown, name: string): string =>
  typeof value === "string" ? StoredText.encode(value) : refuse(`${name} is ${describe(value)}, not a text`)

/** `+ 0` is for -0, which databases do not know. */
const time = (value: unknown, name: string): number =>
  typeof value === "number" && Number.isSafeInteger(value)
    ? value + 0
    : refuse(`${name} is ${describe(value)}, not a time in whole milliseconds`)

const count = (value: unknown, name: string): number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0
    ? value + 0
    : refuse(`${name} is ${describe(value)}, not a whole number of 0 or more`)

const isDeep = (value: Json, allowed: number): boolean =>
  typeof value === "object" &&
  value !== null &&
  (allowed === 0 || Object.values(value).some((item: Json) => isDeep(item, allowed - 1)))

const json = (value: unknown, name: string, restricted: boolean): StoredText.EncodedJson =>
  Either.match(StoredText.encodeJson(value, { name, restricted }), {
    onLeft: refuse,
    onRight: (encoded) =>
      // Each level takes two characters.
      encoded.text.length > 2 * maxJsonDepth && isDeep(encoded.value, maxJsonDepth)
        ? refuse(`${name} is nested more deeply than ${maxJsonDepth} levels`)
        : encoded
  })

const metadata = (value: unknown, restricted: boolean) => {
  fieldsOf(value, "metadata")
  const encoded = json(value, "metadata", restricted)
  // It was an object before, and JSON keeps that.
  return { text: encoded.text, value: encoded.value as { readonly [key: string]: Json } }
}

const conversationFields: ReadonlySet<string> = new Set([
  "id",
  "userId",
  "agentId",
  "title",
  "createdAt",
  "lastActivity",
  "metadata"
])

export const conversation = (given: unknown, restricted: boolean): Checked<ConversationRow, Conversation> => {
  const fields = fieldsOf(given, "conversation")
  knownFields(fields, conversationFields, "conversation")
  const { agentId, createdAt, lastActivity, title, userId } = fields
  const encoded = fields["metadata"] === undefined ? undefined : metadata(fields["metadata"], restricted)
  const row: ConversationRow = {
    id: id(fields["id"], "id"),
    userId: id(userId, "userId"),
    agentId: agentId === undefined ? null : id(agentId, "agentId"),
    title: title === undefined ? null : text(title, "title"),
    createdAt: time(createdAt, "createdAt"),
    lastActivity: time(lastActivity, "lastActivity"),
    metadata: encoded?.text ?? null
  }
  return { row, value: toConversation(row, encoded?.value) }
}

const required: ReadonlySet<string> = new Set(["userId", "createdAt", "lastActivity"])

/** The columns to change; the conversation's own id, which comes along with a copy of all fields, changes nothing. */
export const patch = (given: unknown, conversationId: string, restricted: boolean): ConversationChanges => {
  const fields = fieldsOf(given, "patch")
  knownFields(fields, conversationFields, "patch")
  if (fields["id"] !== undefined && fields["id"] !== conversationId) {
    refuse("id cannot be changed")
  }
  const changes: Mutable<ConversationChanges> = {}
  for (const name of conversationFields) {
    if (name === "id" || !(name in fields)) {
      continue
    }
    const value = fields[name]
    if (value === undefined && required.has(name)) {
      refuse(`${name} cannot be cleared`)
    }
    switch (name) {
      case "userId":
        changes.userId = id(value, name)
        break
      case "agentId":
        changes.agentId = value === undefined ? null : id(value, name)
        break
      case "title":
        changes.title = value === undefined ? null : text(value, name)
        break
      case "createdAt":
        changes.createdAt = time(value, name)
        break
      case "lastActivity":
        changes.lastActivity = time(value, name)
        break
      case "metadata":
        changes.metadata = value === undefined ? null : metadata(value, restricted).text
        break
    }
  }
  return changes
}

const roles: ReadonlySet<unknown> = new Set<Role>(["user", "assistant", "system", "tool"])

const isRole = (value: unknown): value is Role => roles.has(value)

const role = (value: unknown): Role =>
  isRole(value) ? value : refuse(`role is ${describe(value)}, not one of ${Array.from(roles).join(", ")}`)

const usageFields: ReadonlySet<string> = new Set([
  "promptTokens",
  "completionTokens",
  "totalTokens",
  "cacheReadTokens",
  "cacheCreationTokens"
])

const usage = (given: unknown): TokenUsage => {
  const fields = fieldsOf(given, "usage")
  knownFields(fields, usageFields, "usage")
  const { cacheCreationTokens, cacheReadTokens } = fields
  const tokens: Mutable<TokenUsage> = {
    promptTokens: count(fields["promptTokens"], "usage.promptTokens"),
    completionTokens: count(fields["completionTokens"], "usage.completionTokens"),
    totalTokens: count(fields["totalTokens"], "usage.totalTokens")
  }
  if (cacheReadTokens !== undefined) {
    tokens.cacheReadTokens = count(cacheReadTokens, "usage.cacheReadTokens")
  }
  if (cacheCreationTokens !== undefined) {
    tokens.cacheCreationTokens = count(cacheCreationTokens, "usage.cacheCreationTokens")
  }
  return tokens
}

const messageFields: ReadonlySet<string> = new Set([
  "id",
  "conversationId",
  "role",
  "content",
  "timestamp",
  "model",
  "usage",
  "toolCalls",
  "toolCallId",
  "name",
  "metadata"
])

export const message = (given: unknown, restricted: boolean): Checked<MessageRow, ConversationMessage> => {
  const fields = fieldsOf(given, "message")
  knownFields(fields, messageFields, "message")
  const { model, name, toolCallId, toolCalls } = fields
  if (toolCalls !== undefined && !Array.isArray(toolCalls)) {
    refuse(`toolCalls is ${describe(toolCalls)}, not an array`)
  }
  const tokens = fields["usage"] === undefined ? undefined : usage(fields["usage"])
  const calls = toolCalls === undefined ? undefined : json(toolCalls, "toolCalls", restricted)
  const encoded = fields["metadata"] === undefined ? undefined : metadata(fields["metadata"], restricted)
  const row: MessageRow = {
    id: id(fields["id"], "id"),
    conversationId: id(fields["conversationId"], "conversationId"),
    role: role(fields["role"]),
    content: text(fields["content"], "content"),
    timestamp: time(fields["timestamp"], "timestamp"),
    model: model === undefined ? null : text(model, "model"),
    toolCallId: toolCallId === undefined ? null : text(toolCallId, "toolCallId"),
    name: name === undefined ? null : text(name, "name"),
    promptTokens: tokens?.promptTokens ?? null,
    completionTokens: tokens?.completionTokens ?? null,
    totalTokens: tokens?.totalTokens ?? null,
    cacheReadTokens: tokens?.cacheReadTokens ?? null,
    cacheCreationTokens: tokens?.cacheCreationTokens ?? null,
    toolCalls: calls?.text ?? null,
    metadata: encoded?.text ?? null
  }
  // An array before, an array in JSON.
  return { row, value: toMessage(row, calls?.value as ReadonlyArray<Json> | undefined, encoded?.value) }
}

const options = (given: unknown): Fields => (given === undefined ? {} : fieldsOf(given, "options"))

const countOr = <A>(value: unknown, name: string, otherwise: A): number | A =>
  value === undefined ? otherwise : count(value, name)

export const listing = (userId: unknown, given: ListOptions | undefined): ConversationQuery => {
  const { agentId, limit, offset } = options(given)
  return {
    userId: lookup(userId, "userId"),
    agentId: agentId === undefined ? undefined : lookup(agentId, "agentId"),
    offset: countOr(offset, "offset", 0),
    limit: countOr(limit, "limit", undefined)
  }
}

/** A bound may lie between two milliseconds, and beyond all times that are stored. */
const bound = (value: unknown, name: string, round: (value: number) => number): number | undefined =>
  value === undefined
    ? undefined
    : typeof value === "number" && Number.isFinite(value)
      ? Math.max(Number.MIN_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, round(value))) + 0
      : refuse(`${name} is ${describe(value)}, not a time`)

const wantedRoles = (value: unknown): NonEmptyReadonlyArray<Role> | undefined => {
  if (value !== undefined && !Array.isArray(value)) {
    return refuse(`roles is ${describe(value)}, not an array`)
  }
  const wanted = Arr.dedupe((value ?? []).map(role))
  return Arr.isNonEmptyReadonlyArray(wanted) && wanted.length < roles.size ? wanted : undefined
}

export const history = (conversationId: unknown, given: MessageOptions | undefined): MessageQuery => {
  const { limit, offset, order, since, until, ...others } = options(given)
  if (order !== undefined && order !== "asc" && order !== "desc") {
    return refuse(`order is ${describe(order)}, not asc or desc`)
  }
  return {
    conversationId: lookup(conversationId, "conversationId"),
    order: order ?? "asc",
    since: bound(since, "since", Math.ceil),
    until: bound(until, "until", Math.floor),
    roles: wantedRoles(others["roles"]),
    after: undefined,
    offset: countOr(offset, "offset", 0),
    limit: countOr(limit, "limit", undefined)
  }
}

/** The first that is refused is told by its place. */
export const messages = (
  given: unknown,
  restricted: boolean
): { readonly rows: ReadonlyArray<MessageRow>; readonly values: ReadonlyArray<ConversationMessage> } => {
  if (!Array.isArray(given)) {
    return refuse(`messages is ${describe(given)}, not an array`)
  }
  const rows: Array<MessageRow> = []
  const values: Array<ConversationMessage> = []
  for (let at = 0; at < given.length; at++) {
    try {
      const { row, value } = message(given[at], restricted)
      rows.push(row)
      values.push(value)
    } catch (error) {
      throw error instanceof Refusal ? new Refusal(`messages[${at}]: ${error.description}`) : error
    }
  }
  return { rows, values }
}
