import assert from "node:assert/strict"
import { test } from "node:test"
import { count } from "../src/concordance.js"

test("counts words whatever their case", () => {
  assert.deepEqual(count("Sand falls; the sand FALLS, the glass turns."), [
    ["falls", 2],
    ["sand", 2],
    ["the", 2],
    ["glass", 1],
    ["turns", 1]
  ])
})

test("knows letters beyond ASCII", () => {
  assert.deepEqual(count("Über Ünïcødé über"), [
    ["über", 2],
    ["ünïcødé", 1]
  ])
})

test("has nothing to say of an empty text", () => {
  assert.deepEqual(count(""), [])
})
