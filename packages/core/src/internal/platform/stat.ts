import type { PlatformError } from "@effect/platform/Error"
import type { File } from "@effect/platform/FileSystem"
import { Size } from "@effect/platform/FileSystem"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Where } from "./errors.js"
import * as Errors from "./errors.js"
import type { Shell } from "./shell.js"

/** What is not known of old `stat`s comes back as letters. The times by date are there for their fractions. */
const format = "%f %s %d %i %h %u %g %o %b %t %T %X %Y %W|%x|%y|%w"

const types: { readonly [bits: number]: File.Type } = {
  [0o010000]: "FIFO",
  [0o020000]: "CharacterDevice",
  [0o040000]: "Directory",
  [0o060000]: "BlockDevice",
  [0o100000]: "File",
  [0o120000]: "SymbolicLink",
  [0o140000]: "Socket"
}

const number = (text: string | undefined): Option.Option<number> =>
  text !== undefined && /^-?\d+$/.test(text) ? Option.some(Number(text)) : Option.none()

const date = (seconds: string | undefined, readable: string | undefined): Option.Option<Date> =>
  Option.map(number(seconds), (whole) => {
    const fraction = /:\d\d\.(\d+)/.exec(readable ?? "")?.[1] ?? "0"
    return new Date(whole * 1000 + Math.floor(Number(`0.${fraction}`) * 1000))
  })

const parse = (printed: string): File.Info | undefined => {
  const [fields = "", accessed, modified, born] = printed.trim().split("|")
  const [mode = "", size, dev, ino, nlink, uid, gid, blksize, blocks, major = "", minor = "", atime, mtime, birth] =
    fields.split(" ")
  const bits = Number.parseInt(mode, 16)
  if (!Number.isInteger(bits) || Option.isNone(number(size))) return undefined
  return {
    type: types[bits & 0o170000] ?? "Unknown",
    mtime: date(mtime, modified),
    atime: date(atime, accessed),
    birthtime: birth === "0" || birth === "-" ? Option.none() : date(birth, born),
    dev: Option.getOrElse(number(dev), () => 0),
    ino: number(ino),
    mode: bits,
    nlink: number(nlink),
    uid: number(uid),
    gid: number(gid),
    rdev: Option.some(deviceNumber(Number.parseInt(major, 16) || 0, Number.parseInt(minor, 16) || 0)),
    size: Size(BigInt(size ?? "0")),
    blksize: Option.map(number(blksize), Size),
    blocks: number(blocks)
  }
}

/** As Linux puts the two together. */
const deviceNumber = (major: number, minor: number): number =>
  Number(
    BigInt(minor & 0xff) |
      (BigInt(major & 0xfff) << 8n) |
      (BigInt(minor & ~0xff) << 12n) |
      (BigInt(major & ~0xfff) << 32n)
  )

/** Links are followed; `located` is a path of the sandbox. */
export const stat = (shell: Shell, where: Where, located: string): Effect.Effect<File.Info, PlatformError> =>
  Effect.flatMap(shell.run(where, `stat -L -c "$2" -- "$1"`, located, format), (printed) => {
    const info = parse(printed)
    return info === undefined
      ? Effect.fail(Errors.unknown(where, `stat printed something unexpected: ${printed}`))
      : Effect.succeed(info)
  })
