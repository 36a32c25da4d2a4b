export * as Steps from "./Steps.js"
export * as Workflow from "./Workflow.js"
export * as WorkflowError from "./WorkflowError.js"
export * as WorkflowEvent from "./WorkflowEvent.js"
