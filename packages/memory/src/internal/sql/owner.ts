/**
 * Whose a row is.
 *
 * Ids may be of any length, which no index bears, so rows are found by a hash. The ids themselves stand beside it, for
 * people and for the policies that keep teams apart.
 */
import * as StoredText from "@sandglass/core/StoredText"
import * as ResourceRef from "../../ResourceRef.js"
import { hash } from "../hash.js"

export interface Owner {
  readonly hash: string
  readonly resourceId: string
  /** Empty for a resource without a team. */
  readonly teamId: string
}

export const of = (ref: ResourceRef.ResourceRef): Owner => ({
  hash: hash(ResourceRef.key(ref)),
  resourceId: StoredText.encode(ref.resourceId),
  teamId: ref.teamId === undefined ? "" : StoredText.encode(ref.teamId)
})
