/** @internal */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import type { Params } from "./caller.js"

interface Page<Item> {
  readonly items?: ReadonlyArray<Item> | null | undefined
  readonly pagination?: { readonly hasNextPage?: boolean | null | undefined } | null | undefined
}

/** @internal */
export const pageSizeProblem = (pageSize: number | undefined): string | undefined =>
  pageSize === undefined || (Number.isInteger(pageSize) && pageSize >= 1)
    ? undefined
    : `pageSize is a whole number from 1 on, not ${pageSize}`

/**
 * All pages of a list, one after another.
 *
 * @internal
 */
export const paged = <Item, A extends { readonly id: string }>(
  pageSize: number | undefined,
  page: (params: Params) => Effect.Effect<Page<Item>, OpenSandboxError>,
  convert: (item: Item) => A
): Stream.Stream<A, OpenSandboxError> =>
  Stream.suspend(() => {
    // what is created while the pages are read pushes others on to the next page, where they come a second time
    const seen = new Set<string>()
    return Stream.paginateChunkEffect(1, (number) =>
      Effect.map(
        page([
          ["page", String(number)],
          ["pageSize", String(pageSize ?? 100)]
        ]),
        ({ items, pagination }) => {
          const fresh = (items ?? []).map(convert).filter(({ id }) => !seen.has(id))
          for (const { id } of fresh) seen.add(id)
          const more = pagination?.hasNextPage === true && (items ?? []).length > 0
          return [Chunk.unsafeFromArray(fresh), more ? Option.some(number + 1) : Option.none()]
        }
      )
    )
  })
