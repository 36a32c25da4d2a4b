export * as LocalOpenSandbox from "./LocalOpenSandbox.js"
