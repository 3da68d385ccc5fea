// The type of the file of undici that has only its connector. The package itself loads HTTP/2, WebSockets and `fetch`, too.
declare module 'undici/lib/core/connect.js' {
  export { buildConnector as default } from 'undici';
}
