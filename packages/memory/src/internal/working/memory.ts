/**
 * Working memory in memory. Values are kept as JSON text: what is read is a copy, as from a database.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as StoredText from "@sandglass/core/StoredText"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ResourceRef } from "../../ResourceRef.js"
import * as Ref from "../../ResourceRef.js"
import type { WorkingMemory } from "../../WorkingMemory.js"
import * as Checks from "../checks.js"
import { compareText } from "../json.js"

const decode = (text: string | undefined): Option.Option<Json> =>
  text === undefined ? Option.none() : Option.some(StoredText.decodeJson(text))

const named = (operation: string) => `WorkingMemory.${operation}`

export const make: Effect.Effect<Context.Tag.Service<WorkingMemory>> = Effect.sync(() => {
  const resources = new Map<string, Map<string, string>>()

  const put = (owner: string, key: string, text: string | undefined) => {
    const values = resources.get(owner) ?? new Map<string, string>()
    if (text === undefined) {
      values.delete(key)
    } else {
      values.set(key, text)
    }
    if (values.size === 0) {
      resources.delete(owner)
    } else {
      resources.set(owner, values)
    }
  }

  const owned = (operation: string, ref: ResourceRef) => Effect.map(Ref.validate(named(operation), ref), Ref.key)

  const at = (operation: string, ref: ResourceRef, key: string) =>
    Effect.zipLeft(owned(operation, ref), Checks.checkKey(named(operation), key))

  const spanned =
    (operation: string) =>
    <A, E, R>(self: Effect.Effect<A, E, R>) =>
      Effect.withSpan(self, named(operation), { captureStackTrace: false })

  const modify: Context.Tag.Service<WorkingMemory>["modify"] = (ref, key, f) =>
    Effect.gen(function* () {
      const owner = yield* at("modify", ref, key)
      for (;;) {
        const before = resources.get(owner)?.get(key)
        const [result, next] = yield* f(decode(before))
        const text = Option.isSome(next) ? yield* Checks.encode(named("modify"), next.value) : undefined
        if (resources.get(owner)?.get(key) === before) {
          put(owner, key, text)
          return result
        }
        yield* Effect.yieldNow()
      }
    }).pipe(spanned("modify"))

  return {
    get: (ref, key) =>
      at("get", ref, key).pipe(
        Effect.map((owner) => decode(resources.get(owner)?.get(key))),
        spanned("get")
      ),
    set: (ref, key, value) =>
      Effect.zipWith(at("set", ref, key), Checks.encode(named("set"), value), (owner, text) =>
        put(owner, key, text)
      ).pipe(spanned("set")),
    delete: (ref, key) =>
      at("delete", ref, key).pipe(
        Effect.map((owner) => {
          const present = resources.get(owner)?.has(key) === true
          put(owner, key, undefined)
          return present
        }),
        spanned("delete")
      ),
    list: (ref) =>
      owned("list", ref).pipe(
        Effect.map(
          (owner): ReadonlyMap<string, Json> =>
            new Map(
              Array.from(resources.get(owner) ?? [])
                .sort(([a], [b]) => compareText(a, b))
                .map(([key, text]) => [key, StoredText.decodeJson(text)])
            )
        ),
        spanned("list")
      ),
    modify,
    clear: (ref) =>
      owned("clear", ref).pipe(
        Effect.map((owner) => {
          const count = resources.get(owner)?.size ?? 0
          resources.delete(owner)
          return count
        }),
        spanned("clear")
      ),
    copy: (from, to) =>
      Checks.checkCopy(named("copy"), from, to).pipe(
        Effect.flatMap(([source, target]) => {
          if (resources.has(Ref.key(target))) {
            return Effect.fail(Checks.notEmpty(named("copy"), target))
          }
          const values = resources.get(Ref.key(source))
          if (values !== undefined) {
            resources.set(Ref.key(target), new Map(values))
          }
          return Effect.succeed(values?.size ?? 0)
        }),
        spanned("copy")
      ),
    transaction: Option.none()
  }
})
