/**
 * Working memory in a table.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as StoredText from "@sandglass/core/StoredText"
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import { MemoryStoreError } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import * as Ref from "../../ResourceRef.js"
import type { WorkingMemory } from "../../WorkingMemory.js"
import * as Checks from "../checks.js"
import { hash } from "../hash.js"
import { compareText } from "../json.js"
import type { Database } from "./database.js"
import type { Table } from "./migration.js"
import * as Owner from "./owner.js"

export const table: Table = {
  name: "sandglass_working_memory",
  columns:
    "resource_hash TEXT NOT NULL, key_hash TEXT NOT NULL, team_id TEXT NOT NULL, resource_id TEXT NOT NULL, " +
    "key TEXT NOT NULL, value TEXT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (resource_hash, key_hash)",
  options: "WITHOUT ROWID",
  owned: true,
  indexes: []
}

const named = (operation: string) => `WorkingMemory.${operation}`

const contention = new MemoryStoreError({
  method: named("modify"),
  reason: "Contention",
  description: "others kept writing the same key"
})

const decode = (text: unknown): Option.Option<Json> =>
  text === undefined ? Option.none() : Option.some(StoredText.decodeJson(String(text)))

/** At first without a pause: among many fibers of one process everybody's turn comes soon. */
const patience = (timeout: Duration.DurationInput) =>
  Schedule.recurs(100).pipe(
    Schedule.andThen(
      Schedule.exponential("1 millis", 1.5).pipe(
        Schedule.union(Schedule.spaced("50 millis")),
        Schedule.jittered,
        Schedule.upTo(timeout)
      )
    )
  )

export const make = (
  { dialect, reading, transaction, writing }: Database,
  contentionTimeout: Duration.DurationInput
): Context.Tag.Service<WorkingMemory> => {
  const columns = "resource_hash, key_hash, team_id, resource_id, key, value, updated_at"
  const whose = "resource_hash = ? AND key_hash = ?"
  const insert = `INSERT INTO ${table.name} (${columns}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (resource_hash, key_hash)`
  const texts = {
    get: dialect.text(`SELECT value FROM ${table.name} WHERE ${whose}`),
    list: dialect.text(`SELECT key, value FROM ${table.name} WHERE resource_hash = ?`),
    set: dialect.text(`${insert} DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`),
    insert: dialect.text(`${insert} DO NOTHING RETURNING key_hash`),
    update: dialect.text(
      `UPDATE ${table.name} SET value = ?, updated_at = ? WHERE ${whose} AND value = ? RETURNING key_hash`
    ),
    remove: dialect.text(`DELETE FROM ${table.name} WHERE ${whose} AND value = ? RETURNING key_hash`),
    delete: dialect.text(`DELETE FROM ${table.name} WHERE ${whose} RETURNING key_hash`),
    clear: dialect.text(`DELETE FROM ${table.name} WHERE resource_hash = ? RETURNING key_hash`),
    any: dialect.text(`SELECT 1 AS found FROM ${table.name} WHERE resource_hash = ? LIMIT 1`),
    copy: dialect.text(
      `INSERT INTO ${table.name} (${columns}) SELECT CAST(? AS TEXT), key_hash, CAST(? AS TEXT), CAST(? AS TEXT), key, value, updated_at ` +
        `FROM ${table.name} WHERE resource_hash = ? RETURNING key_hash`
    )
  }

  const spanned =
    (operation: string) =>
    <A, E, R>(self: Effect.Effect<A, E, R>) =>
      Effect.withSpan(self, named(operation), { captureStackTrace: false })

  const owned = (operation: string, ref: ResourceRef) => Effect.map(Ref.validate(named(operation), ref), Owner.of)

  const at = (operation: string, ref: ResourceRef, key: string) =>
    Effect.zipWith(owned(operation, ref), Checks.checkKey(named(operation), key), (owner) => ({
      owner,
      keyHash: hash(key)
    }))

  const rowOf = (owner: Owner.Owner, key: string, value: string, now: number) => [
    owner.hash,
    hash(key),
    owner.teamId,
    owner.resourceId,
    StoredText.encode(key),
    value,
    now
  ]

  /** Whether the row was still what it was before. */
  const replace = (
    owner: Owner.Owner,
    key: string,
    before: string | undefined,
    after: string | undefined
  ): Effect.Effect<boolean, MemoryStoreError> => {
    if (before === after) {
      return Effect.succeed(true)
    }
    const keyHash = hash(key)
    return Effect.flatMap(Clock.currentTimeMillis, (now) =>
      writing(named("modify"), owner, (run) =>
        before === undefined
          ? run(texts.insert, rowOf(owner, key, after ?? "", now))
          : after === undefined
            ? run(texts.remove, [owner.hash, keyHash, before])
            : run(texts.update, [after, now, owner.hash, keyHash, before])
      )
    ).pipe(Effect.map((rows) => rows.length > 0))
  }

  return {
    get: (ref, key) =>
      at("get", ref, key).pipe(
        Effect.flatMap(({ owner, keyHash }) =>
          reading(named("get"), owner, (run) => run(texts.get, [owner.hash, keyHash]))
        ),
        Effect.map(([row]) => decode(row?.["value"])),
        spanned("get")
      ),
    set: (ref, key, value) =>
      Effect.gen(function* () {
        const { owner } = yield* at("set", ref, key)
        const text = yield* Checks.encode(named("set"), value)
        const now = yield* Clock.currentTimeMillis
        yield* writing(named("set"), owner, (run) => run(texts.set, rowOf(owner, key, text, now)))
      }).pipe(spanned("set")),
    delete: (ref, key) =>
      at("delete", ref, key).pipe(
        Effect.flatMap(({ owner, keyHash }) =>
          writing(named("delete"), owner, (run) => run(texts.delete, [owner.hash, keyHash]))
        ),
        Effect.map((rows) => rows.length > 0),
        spanned("delete")
      ),
    list: (ref) =>
      owned("list", ref).pipe(
        Effect.flatMap((owner) => reading(named("list"), owner, (run) => run(texts.list, [owner.hash]))),
        Effect.map(
          (rows): ReadonlyMap<string, Json> =>
            new Map(
              rows
                .map(
                  ({ key, value }) => [StoredText.decode(String(key)), StoredText.decodeJson(String(value))] as const
                )
                .sort(([a], [b]) => compareText(a, b))
            )
        ),
        spanned("list")
      ),
    modify: (ref, key, f) =>
      Effect.gen(function* () {
        const { keyHash, owner } = yield* at("modify", ref, key)
        const pauses = yield* Schedule.driver(patience(contentionTimeout))
        for (;;) {
          const [row] = yield* reading(named("modify"), owner, (run) => run(texts.get, [owner.hash, keyHash]))
          const before = row === undefined ? undefined : String(row["value"])
          const [result, next] = yield* f(decode(before))
          const after = Option.isSome(next) ? yield* Checks.encode(named("modify"), next.value) : undefined
          if (yield* replace(owner, key, before, after)) {
            return result
          }
          yield* Effect.yieldNow()
          yield* Effect.catchAll(pauses.next(undefined), () => Effect.fail(contention))
        }
      }).pipe(spanned("modify")),
    clear: (ref) =>
      owned("clear", ref).pipe(
        Effect.flatMap((owner) => writing(named("clear"), owner, (run) => run(texts.clear, [owner.hash]))),
        Effect.map((rows) => rows.length),
        spanned("clear")
      ),
    copy: (from, to) =>
      Effect.gen(function* () {
        const [source, target] = yield* Checks.checkCopy(named("copy"), from, to)
        const [old, owner] = [Owner.of(source), Owner.of(target)]
        const taken = Checks.notEmpty(named("copy"), target)
        const copied = yield* writing(named("copy"), owner, (run) =>
          Effect.gen(function* () {
            if ((yield* run(texts.any, [owner.hash])).length > 0) {
              return yield* taken
            }
            return yield* run(texts.copy, [owner.hash, owner.teamId, owner.resourceId, old.hash])
          })
        ).pipe(
          // Somebody wrote the same key at the same moment.
          Effect.mapError((error) =>
            error._tag === "MemoryStoreError" && error.reason === "Constraint" ? taken : error
          )
        )
        return copied.length
      }).pipe(spanned("copy")),
    transaction: Option.some(transaction)
  }
}
