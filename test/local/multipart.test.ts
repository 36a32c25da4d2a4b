import { assert, describe, it } from "@effect/vitest"
import { boundaryOf, MultipartParser } from "../../packages/local/src/internal/multipart.js"

const parse = (body: Uint8Array, boundary: string, size: number) => {
  const parser = new MultipartParser(boundary)
  const parts: Array<{ name: string; content: Buffer }> = []
  for (let i = 0; i < body.length; i += size) {
    for (const event of parser.push(body.subarray(i, i + size))) {
      const last = parts.at(-1)
      if (event._tag === "Part") parts.push({ name: event.name, content: Buffer.alloc(0) })
      else if (event._tag === "Data" && last !== undefined) last.content = Buffer.concat([last.content, event.bytes])
    }
  }
  parser.end()
  return parts.map(({ content, name }) => [name, content.toString("latin1")])
}

describe("multipart", () => {
  it("finds the same parts however the body is cut", () => {
    const tricky = "\r\n--\r\n--bound\r\n-\r\r\n\x00\xff--boundary"
    const body = Buffer.from(
      `preamble\r\n--boundary\r\nContent-Disposition: form-data; filename="name=\\"x\\" 100%.csv"; name="a"\r\nX: y\r\n\r\n${tricky}\r\n--boundary  \r\n` +
        `content-disposition: form-data; name=b\r\n\r\n\r\n--boundary\r\n\r\nno headers\r\n--boundary--\r\nepilogue`,
      "latin1"
    )
    for (let size = 1; size <= body.length; size++) {
      assert.deepStrictEqual(parse(body, "boundary", size), [
        ["a", tricky],
        ["b", ""],
        ["", "no headers"]
      ])
    }
  })

  it("refuses a body that is cut short", () => {
    assert.throws(
      () => parse(Buffer.from('--b\r\nContent-Disposition: form-data; name="a"\r\n\r\ntext\r\n--b'), "b", 100),
      "ends before"
    )
    assert.throws(() => parse(Buffer.from(`--b\r\n${"x".repeat(70_000)}`), "b", 1000), "too long")
  })

  it("finds the boundary", () => {
    assert.strictEqual(boundaryOf("multipart/form-data; boundary=abc"), "abc")
    assert.strictEqual(boundaryOf('Multipart/Form-Data; charset=utf-8; boundary="a b"'), "a b")
    assert.isUndefined(boundaryOf("multipart/mixed; boundary=abc"))
    assert.isUndefined(boundaryOf("multipart/form-data"))
  })
})
