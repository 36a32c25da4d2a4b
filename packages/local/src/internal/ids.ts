/** @internal */
import { randomBytes } from "node:crypto"

/** Ids of this server's things. Unpredictable on purpose, so not from the `Random` service, which a program may seed. */
export const uuid = (): string => {
  const bytes = randomBytes(16)
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x40, 6)
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8)
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")
}

export const secret = (): string => randomBytes(24).toString("hex")
