// The types of files of undici that the package does not export by name.

/** Its connector alone: the package itself loads HTTP/2, WebSockets and `fetch`, too. */
declare module 'undici/lib/core/connect.js' {
  export { buildConnector as default } from 'undici';
}

/** The parser of answers. */
declare module 'undici/lib/llhttp/llhttp_simd-wasm.js' {}
