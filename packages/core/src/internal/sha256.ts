/** @internal */

const initial = [
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19
] as const

// the first 32 bits of the fractional parts of the cube roots of the first 64 primes
const constants = ((): Uint32Array => {
  const out = new Uint32Array(64)
  let found = 0
  for (let candidate = 2; found < 64; candidate++) {
    let prime = true
    for (let divisor = 2; divisor * divisor <= candidate; divisor++) {
      if (candidate % divisor === 0) {
        prime = false
        break
      }
    }
    if (prime) out[found++] = (Math.cbrt(candidate) % 1) * 0x100000000
  }
  return out
})()

/**
 * SHA-256 as hexadecimal digits. Web Crypto's digest is asynchronous, and what needs a hash here is a plain function.
 *
 * @internal
 */
export const sha256Hex = (data: Uint8Array): string => {
  const padded = new Uint8Array((((data.length + 8) >> 6) + 1) << 6)
  padded.set(data)
  padded[data.length] = 0x80
  const view = new DataView(padded.buffer)
  view.setUint32(padded.length - 8, Math.floor(data.length / 0x20000000))
  view.setUint32(padded.length - 4, data.length << 3)

  const hash = Uint32Array.from(initial)
  const w = new Uint32Array(64)
  // reads stay within the fixed sizes above
  const at = (array: Uint32Array, index: number): number => array[index] ?? 0
  const rotate = (x: number, n: number): number => (x >>> n) | (x << (32 - n))

  for (let offset = 0; offset < padded.length; offset += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(offset + i * 4)
    for (let i = 16; i < 64; i++) {
      const a = at(w, i - 15)
      const b = at(w, i - 2)
      const s0 = rotate(a, 7) ^ rotate(a, 18) ^ (a >>> 3)
      const s1 = rotate(b, 17) ^ rotate(b, 19) ^ (b >>> 10)
      w[i] = at(w, i - 16) + s0 + at(w, i - 7) + s1
    }
    let a = at(hash, 0),
      b = at(hash, 1),
      c = at(hash, 2),
      d = at(hash, 3)
    let e = at(hash, 4),
      f = at(hash, 5),
      g = at(hash, 6),
      h = at(hash, 7)
    for (let i = 0; i < 64; i++) {
      const s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + at(constants, i) + at(w, i)) | 0
      const s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0
      h = g
      g = f
      f = e
      e = (d + t1) | 0
      d = c
      c = b
      b = a
      a = (t1 + t2) | 0
    }
    const round = [a, b, c, d, e, f, g, h]
    for (let i = 0; i < 8; i++) hash[i] = at(hash, i) + (round[i] ?? 0)
  }
  return Array.from(hash, (word) => word.toString(16).padStart(8, "0")).join("")
}
