/**
 * Random ids, behind a reference so that a test or a replay can fix them.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"

const next: Effect.Effect<string> = Effect.sync(() => {
  let id = ""
  for (const byte of globalThis.crypto.getRandomValues(new Uint8Array(16))) {
    id += byte.toString(16).padStart(2, "0")
  }
  return id
})

/**
 * Where ids that must not collide come from: the key that a lost create is found by, the boundary of an upload.
 *
 * The default draws 128 bits from Web Crypto and writes them as 32 hexadecimal digits. A replacement must keep to letters and digits, at most 63 of
 * them, because ids travel as Kubernetes label values and as multipart boundaries. It is read when a client is built.
 *
 * @example
 * ```ts
 * import { IdGenerator } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 * import * as Layer from "effect/Layer"
 *
 * let count = 0
 * export const counting = Layer.succeed(IdGenerator.IdGenerator, {
 *   next: Effect.sync(() => `id${++count}`)
 * })
 * ```
 *
 * @since 0.1.0
 * @category references
 */
export class IdGenerator extends Context.Reference<IdGenerator>()("@sandglass/core/IdGenerator", {
  defaultValue: (): { readonly next: Effect.Effect<string> } => ({ next })
}) {}
