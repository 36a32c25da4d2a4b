import { assert, layer } from "@effect/vitest"
import { SchemaWorkingMemory, WorkingMemory } from "@sandglass/memory"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as v from "valibot"
import * as z from "zod"

const ref = { resourceId: "user-7" }
const stored = (key: string) => Effect.flatMap(WorkingMemory.WorkingMemory, (working) => working.get(ref, key))

layer(WorkingMemory.layerMemory)("schemas of other libraries", (it) => {
  it.effect("Zod, with defaults and transformations", () =>
    Effect.gen(function* () {
      const Profile = z.object({
        name: z.string().min(1),
        born: z.iso.date().transform((text) => new Date(text)),
        settings: z.object({ dark: z.boolean().default(false), size: z.number().optional() }).prefault({})
      })
      const profile = yield* SchemaWorkingMemory.make(Profile, { key: "zod" })
      const written: z.output<typeof Profile> = yield* profile.set(ref, { name: "Ada", born: "1815-12-10" })
      assert.deepStrictEqual(written, { name: "Ada", born: new Date("1815-12-10"), settings: { dark: false } })
      // What went in is what is stored, so that it can be validated again.
      assert.deepStrictEqual(yield* stored("zod"), Option.some({ name: "Ada", born: "1815-12-10" }))
      const changed = yield* profile.update(ref, { settings: { size: 12 } })
      assert.deepStrictEqual(changed.settings, { dark: false, size: 12 })
      assert.deepStrictEqual((yield* profile.update(ref, { settings: { dark: true } })).settings, {
        dark: true,
        size: 12
      })
      assert.deepStrictEqual(yield* profile.get(ref), Option.some({ ...written, settings: { dark: true, size: 12 } }))
      const before = yield* stored("zod")
      const error = yield* Effect.flip(profile.update(ref, { name: "", born: "yesterday" }))
      assert.strictEqual(error._tag, "InvalidInput")
      assert.match(error.message, /name: .*; born: /)
      assert.deepStrictEqual(yield* stored("zod"), before)
      // @ts-expect-error: the input of the schema is a text
      assert.strictEqual((yield* Effect.flip(profile.set(ref, { name: "Ada", born: 7 })))._tag, "InvalidInput")
    })
  )

  it.effect("Zod, refined asynchronously", () =>
    Effect.gen(function* () {
      const Name = z.object({ name: z.string().refine((name) => Promise.resolve(name !== "taken"), "is taken") })
      const names = yield* SchemaWorkingMemory.make(Name, { key: "async" })
      yield* names.set(ref, { name: "free" })
      const error = yield* Effect.flip(names.update(ref, { name: "taken" }))
      assert.strictEqual(error.message, "SchemaWorkingMemory.update: name: is taken")
      assert.deepStrictEqual(yield* names.get(ref), Option.some({ name: "free" }))
    })
  )

  it.effect("Valibot, after its schema has changed", () =>
    Effect.gen(function* () {
      const Old = v.object({ count: v.number(), tags: v.optional(v.array(v.string()), []) })
      const counts = yield* SchemaWorkingMemory.make(Old, { key: "valibot" })
      const first: v.InferOutput<typeof Old> = yield* counts.update(ref, { count: 1 })
      assert.deepStrictEqual(first, { count: 1, tags: [] })
      yield* counts.update(ref, { tags: ["a"] })
      assert.deepStrictEqual(yield* stored("valibot"), Option.some({ count: 1, tags: ["a"] }))
      const New = v.object({ count: v.pipe(v.string(), v.regex(/^\d+$/)) })
      const renewed = yield* SchemaWorkingMemory.make(New, { key: "valibot" })
      for (const failing of [Effect.asVoid(renewed.get(ref)), Effect.asVoid(renewed.update(ref, { count: "2" }))]) {
        const error = yield* Effect.flip(failing)
        assert.strictEqual(error._tag, "InvalidStoredValue")
        assert.match(error.message, /count/)
      }
      assert.deepStrictEqual(yield* stored("valibot"), Option.some({ count: 1, tags: ["a"] }))
      yield* renewed.set(ref, { count: "2" })
      assert.deepStrictEqual(yield* renewed.get(ref), Option.some({ count: "2" }))
    })
  )

  it.effect("an Effect schema as a Standard Schema is an Effect schema", () =>
    Effect.gen(function* () {
      const Dates = Schema.Struct({ at: Schema.Date })
      const dates = yield* SchemaWorkingMemory.make(Schema.standardSchemaV1(Dates), { key: "effect" })
      const at = new Date(7)
      assert.deepStrictEqual(yield* dates.set(ref, { at }), { at })
      assert.deepStrictEqual(yield* stored("effect"), Option.some({ at: "1970-01-01T00:00:00.007Z" }))
    })
  )
})
