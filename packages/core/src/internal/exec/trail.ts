import type { LedgerEntry } from "../../LedgerEvent.js"
import { stringField } from "../json.js"

/**
 * The recorded output of a detached command, where several followers may have recorded it: each piece tells from which place it was read
 * (`from`) and by whom (`by`), and the last of what was read together tells the place behind it (`cursor`). Of several that begin at the same
 * place the first counts, so that every byte is told once, whoever recorded it.
 */
export interface Trail {
  /** The place up to which the output is recorded; undefined at its start. */
  readonly cursor: () => string | undefined
  /** To be asked for each piece, in the order of the ledger: whether it is the next. */
  readonly follows: (entry: LedgerEntry) => boolean
  /** What a piece is marked with that was read from here; `next` with the last. */
  readonly mark: (follower: string, next: string | undefined) => { readonly [field: string]: string | undefined }
}

const start = ""

export const makeTrail = (): Trail => {
  let place: string | undefined
  /** Whose pieces are being taken. */
  let taking: string | undefined
  return {
    cursor: () => place,
    follows: ({ payload }) => {
      const from = stringField(payload, "from")
      const cursor = stringField(payload, "cursor")
      const by = stringField(payload, "by")
      // Without a mark there is one who recorded: a command that is not detached, or an older version.
      if (from !== undefined && (from !== (place ?? start) || (taking !== undefined && taking !== by))) return false
      taking = cursor === undefined ? by : undefined
      place = cursor ?? place
      return true
    },
    mark: (by, next) => ({ from: place ?? start, by, cursor: next })
  }
}
