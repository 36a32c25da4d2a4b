/**
 * The operations of the OpenSandbox contracts, from `test/fixtures/openapi`: paths, methods, parameters and schemas of the published documents (lifecycle,
 * diagnostics, execd, egress; June 2026), and of the terminals, which have none. Checks recorded requests against them.
 *
 * Schemas are read strictly: a field that is not named in one is an error, though the documents of some servers would let it pass.
 */
import * as Fs from "node:fs"
import { Ajv2020 } from "ajv/dist/2020.js"
import type { RecordedRequest } from "./ScriptedServer.js"

type Json = { readonly [key: string]: unknown }

interface Parameter {
  readonly name: string
  readonly in: "path" | "query" | "header"
  readonly required: boolean
  readonly schema: Json
}

export interface Operation {
  readonly document: string
  readonly method: string
  readonly path: string
  readonly operationId?: string
  readonly parameters: ReadonlyArray<Parameter>
  readonly requestBody?: { readonly required: boolean; readonly content: { readonly [mediaType: string]: Json } }
  readonly security: ReadonlyArray<{ readonly in: string; readonly name: string }>
  readonly schemas: { readonly [name: string]: Json }
}

export const documents = ["lifecycle", "diagnostics", "execd", "egress", "pty"] as const

const isRecord = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)

const read = (document: string): ReadonlyArray<Operation> => {
  const url = new URL(`../fixtures/openapi/${document}.json`, import.meta.url)
  // the files are this repository's own
  const facts = JSON.parse(Fs.readFileSync(url, "utf8")) as {
    readonly security: Operation["security"]
    readonly operations: ReadonlyArray<Omit<Operation, "document" | "security" | "schemas">>
    readonly schemas: Operation["schemas"]
  }
  return facts.operations.map((operation) => ({
    ...operation,
    document,
    security: facts.security,
    schemas: facts.schemas
  }))
}

export const operations: ReadonlyArray<Operation> = documents.flatMap(read)

export const nameOf = ({ document, method, path }: Operation): string => `${document} ${method} ${path}`

const pattern = ({ path }: Operation): RegExp =>
  new RegExp(`^${path.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{[^}]+\}/g, "([^/]+)")}$`)

/** The operation of a request whose path is below the base of one of the documents; literal segments win over parameters. */
export const operationOf = (
  candidates: ReadonlyArray<Operation>,
  method: string,
  path: string
): Operation | undefined =>
  candidates
    .filter((operation) => operation.method === method && pattern(operation).test(path))
    .sort((a, b) => a.path.split("{").length - b.path.split("{").length)[0]

/** The same schema, with objects that name their fields closed, and references that the checker can follow. */
const strict = (schema: unknown): unknown => {
  if (Array.isArray(schema)) return schema.map(strict)
  if (!isRecord(schema)) return schema
  const out: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(schema)) {
    out[key] =
      key === "$ref" && typeof value === "string"
        ? value.replace("#/components/schemas/", "#/$defs/")
        : key === "properties" && isRecord(value)
          ? Object.fromEntries(Object.entries(value).map(([name, property]) => [name, strict(property)]))
          : strict(value)
  }
  if (isRecord(schema["properties"]) && schema["additionalProperties"] === undefined)
    out["additionalProperties"] = false
  return out
}

const problems = (operation: Operation, schema: Json, value: unknown, what: string): ReadonlyArray<string> => {
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false })
  const defs = Object.fromEntries(Object.entries(operation.schemas).map(([name, def]) => [name, strict(def)]))
  const valid = ajv.validate({ ...(strict(schema) as object), $defs: defs }, value)
  return valid ? [] : (ajv.errors ?? []).map((error) => `${what}${error.instancePath}: ${error.message}`)
}

/** A parameter's text, as the type that its schema wants. */
const typed = (schema: Json, text: string): unknown => {
  switch (schema["type"]) {
    case "integer":
    case "number":
      return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text
    case "boolean":
      return text === "true" ? true : text === "false" ? false : text
    default:
      return text
  }
}

interface Part {
  readonly name: string
  readonly fileName: string | undefined
  readonly contentType: string | undefined
  readonly content: string
}

const parts = (request: RecordedRequest): ReadonlyArray<Part> => {
  const boundary = /boundary=(.+)$/.exec(request.headers["content-type"] ?? "")?.[1] ?? ""
  return request.text
    .split(`--${boundary}`)
    .slice(1, -1)
    .map((part) => {
      const [head = "", ...rest] = part.replace(/^\r\n/, "").split("\r\n\r\n")
      return {
        name: /[; ]name="([^"]*)"/.exec(head)?.[1] ?? "",
        fileName: /filename="([^"]*)"/.exec(head)?.[1],
        contentType: /content-type: *(.+)/i.exec(head)?.[1],
        content: rest.join("\r\n\r\n").replace(/\r\n$/, "")
      }
    })
}

/** A body as the value that the schemas are about; the files of a multipart body by their metadata. */
export const bodyOf = (request: RecordedRequest): unknown => {
  if (request.body.length === 0) return undefined
  if (!/^multipart\/form-data/.test(request.headers["content-type"] ?? "")) return request.json
  return parts(request)
    .filter(({ name }) => name === "metadata")
    .map(({ content }) => JSON.parse(content) as unknown)
}

const multipartProblems = (operation: Operation, request: RecordedRequest): ReadonlyArray<string> => {
  const all = parts(request)
  const found: Array<string> = []
  all.forEach((part, index) => {
    const expected = index % 2 === 0 ? "metadata" : "file"
    if (part.name !== expected) found.push(`part ${index} is ${part.name}, not ${expected}`)
    if (part.fileName === undefined) found.push(`part ${index} has no file name`)
    const type = expected === "metadata" ? "application/json" : "application/octet-stream"
    if (part.contentType !== type) found.push(`part ${index} is ${part.contentType}`)
    if (expected === "metadata") {
      found.push(
        ...problems(operation, { $ref: "#/components/schemas/FileMetadata" }, JSON.parse(part.content), "metadata")
      )
    }
  })
  if (all.length === 0 || all.length % 2 !== 0) found.push(`${all.length} parts`)
  return found
}

/** What is wrong with a request; `path` is the part of its path that the document names. */
export const problemsOf = (operation: Operation, request: RecordedRequest, path: string): ReadonlyArray<string> => {
  const found: Array<string> = []
  const segments = pattern(operation).exec(path)?.slice(1) ?? []
  const names = [...operation.path.matchAll(/\{([^}]+)\}/g)].map(([, name]) => name)
  for (const parameter of operation.parameters) {
    const what = `${parameter.in} ${parameter.name}`
    const values =
      parameter.in === "path"
        ? segments.slice(names.indexOf(parameter.name)).slice(0, 1).map(decodeURIComponent)
        : parameter.in === "query"
          ? request.query.getAll(parameter.name)
          : [request.headers[parameter.name.toLowerCase()]].filter((value) => value !== undefined)
    if (values.length === 0) {
      if (parameter.required) found.push(`${what} is missing`)
    } else if (parameter.schema["type"] === "array") {
      const items = isRecord(parameter.schema["items"]) ? parameter.schema["items"] : {}
      found.push(
        ...problems(
          operation,
          parameter.schema,
          values.map((value) => typed(items, value)),
          what
        )
      )
    } else if (values.length > 1) {
      found.push(`${what} is given ${values.length} times`)
    } else {
      found.push(...problems(operation, parameter.schema, typed(parameter.schema, values[0] ?? ""), what))
    }
  }
  for (const name of new Set(request.query.keys())) {
    if (!operation.parameters.some((parameter) => parameter.in === "query" && parameter.name === name)) {
      found.push(`query ${name} is unknown`)
    }
  }
  for (const { in: place, name } of operation.security) {
    if (place === "header" && request.headers[name.toLowerCase()] === undefined) found.push(`header ${name} is missing`)
  }
  const contents = operation.requestBody?.content ?? {}
  const mediaType = (request.headers["content-type"] ?? "").replace(/;.*/, "")
  const schema = contents[mediaType]
  if (request.body.length === 0) {
    if (operation.requestBody?.required === true) found.push("the body is missing")
  } else if (schema === undefined) {
    found.push(`a body of type ${JSON.stringify(mediaType)}`)
  } else if (mediaType === "multipart/form-data") {
    found.push(...multipartProblems(operation, request))
  } else {
    found.push(...problems(operation, schema, request.json, "body"))
  }
  return found
}

const resolve = (operation: Operation, schema: Json): Json => {
  const reference = schema["$ref"]
  return typeof reference === "string"
    ? resolve(operation, operation.schemas[reference.slice("#/components/schemas/".length)] ?? {})
    : schema
}

/** The fields that a schema names, with their places, as far as `value` may hold them. */
const fieldsOf = (operation: Operation, schema: Json, at: string): ReadonlyArray<string> => {
  const { additionalProperties, items, oneOf, properties } = resolve(operation, schema)
  return [
    ...(isRecord(properties)
      ? Object.entries(properties).flatMap(([name, property]) => [
          `${at}.${name}`,
          ...(isRecord(property) ? fieldsOf(operation, property, `${at}.${name}`) : [])
        ])
      : []),
    ...(isRecord(items) ? fieldsOf(operation, items, `${at}[]`) : []),
    ...(isRecord(additionalProperties) ? fieldsOf(operation, additionalProperties, `${at}.*`) : []),
    ...(Array.isArray(oneOf)
      ? oneOf.flatMap((option) => (isRecord(option) ? fieldsOf(operation, option, at) : []))
      : [])
  ]
}

/** Every place of the request where the document has something to say: parameters and fields of the body. */
export const placesOf = (operation: Operation): ReadonlySet<string> => {
  const places = new Set<string>()
  for (const parameter of operation.parameters) {
    if (parameter.in !== "path") places.add(`${parameter.in} ${parameter.name}`)
  }
  for (const [mediaType, schema] of Object.entries(operation.requestBody?.content ?? {})) {
    const fields =
      mediaType === "multipart/form-data"
        ? fieldsOf(operation, { items: { $ref: "#/components/schemas/FileMetadata" } }, "body")
        : fieldsOf(operation, schema, "body")
    for (const field of fields) places.add(field)
  }
  return places
}

const filled = (operation: Operation, schema: Json, value: unknown, at: string): ReadonlyArray<string> => {
  const { additionalProperties, items, oneOf, properties } = resolve(operation, schema)
  const options = Array.isArray(oneOf) ? oneOf.filter(isRecord) : []
  const own = options.flatMap((option) => filled(operation, option, value, at))
  if (Array.isArray(value)) {
    return [...own, ...(isRecord(items) ? value.flatMap((item) => filled(operation, items, item, `${at}[]`)) : [])]
  }
  if (!isRecord(value)) return own
  return [
    ...own,
    ...Object.entries(value).flatMap(([name, field]) => {
      const property = isRecord(properties) ? properties[name] : undefined
      if (isRecord(property)) return [`${at}.${name}`, ...filled(operation, property, field, `${at}.${name}`)]
      return isRecord(additionalProperties) ? filled(operation, additionalProperties, field, `${at}.*`) : []
    })
  ]
}

/** Those of them that a request fills. */
export const placesIn = (operation: Operation, request: RecordedRequest): ReadonlyArray<string> => [
  ...[...request.query.keys()].map((name) => `query ${name}`),
  ...operation.parameters
    .filter((parameter) => parameter.in === "header" && request.headers[parameter.name.toLowerCase()] !== undefined)
    .map(({ name }) => `header ${name}`),
  ...Object.entries(operation.requestBody?.content ?? {}).flatMap(([mediaType, schema]) =>
    filled(
      operation,
      mediaType === "multipart/form-data" ? { items: { $ref: "#/components/schemas/FileMetadata" } } : schema,
      bodyOf(request),
      "body"
    )
  )
]
