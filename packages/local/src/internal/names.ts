/** @internal */
import { readFileOr } from "./process.js"
import type { Root } from "./rooted.js"
import { readSmallFile } from "./rooted.js"

type Kind = "passwd" | "group"

const entries = (root: Root, kind: Kind): ReadonlyArray<ReadonlyArray<string>> =>
  // In plain mode the sandbox has no `/etc` of its own.
  (readSmallFile(root, `/etc/${kind}`) ?? readFileOr(`/etc/${kind}`, "")).split("\n").map((line) => line.split(":"))

export interface Names {
  readonly user: (uid: number) => string
  readonly group: (gid: number) => string
  readonly uid: (name: string) => number | undefined
  readonly gid: (name: string) => number | undefined
}

/** Users and groups as the sandbox names them, read when first needed. */
export const namesOf = (root: Root): Names => {
  const loaded = new Map<Kind, ReadonlyArray<ReadonlyArray<string>>>()
  const load = (kind: Kind) => {
    const known = loaded.get(kind)
    if (known !== undefined) return known
    const read = entries(root, kind)
    loaded.set(kind, read)
    return read
  }
  const name = (kind: Kind, id: number) => load(kind).find((entry) => entry[2] === String(id))?.[0] ?? String(id)
  const id = (kind: Kind, wanted: string) => {
    const found = load(kind).find((entry) => entry[0] === wanted)?.[2] ?? (/^\d+$/.test(wanted) ? wanted : undefined)
    return found === undefined ? undefined : Number(found)
  }
  return {
    user: (uid) => name("passwd", uid),
    group: (gid) => name("group", gid),
    uid: (wanted) => id("passwd", wanted),
    gid: (wanted) => id("group", wanted)
  }
}
