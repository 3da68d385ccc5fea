// The built gateway, which ends when it serves and prints which of some modules of Node it has loaded.
// Arguments: the configuration file.
const [, , configFile = ''] = process.argv;
const { main } = await import(new URL('../../../dist/main.js', import.meta.url).href);
const write = process.stderr.write.bind(process.stderr);
process.stderr.write = (text: string | Uint8Array) => {
  if (!String(text).includes('listening')) return write(text);
  const modules: readonly string[] = Reflect.get(process, 'moduleLoadList');
  const asked = [
    'http',
    'zlib',
    'internal/deps/undici/undici',
    'http2',
    'internal/util/diff',
    'internal/crypto/webcrypto',
  ];
  write(`${JSON.stringify(asked.filter((name) => modules.includes(`NativeModule ${name}`)))}\n`);
  process.exit();
};
await main(['serve', '--config', configFile]);
