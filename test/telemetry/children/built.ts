// The built gateway, which ends when it serves and prints how many of Node's own modules it has loaded and whether `fetch` is among them.
// Arguments: the configuration file.
const [, , configFile = ''] = process.argv;
const { main } = await import(new URL('../../../dist/main.js', import.meta.url).href);
const write = process.stderr.write.bind(process.stderr);
process.stderr.write = (text: string | Uint8Array) => {
  if (!String(text).includes('listening')) return write(text);
  const modules: readonly string[] = Reflect.get(process, 'moduleLoadList');
  const hasFetch = modules.some((name) => name.includes('undici'));
  write(`${JSON.stringify({ hasFetch, hasHttp: modules.includes('NativeModule http') })}\n`);
  process.exit();
};
await main(['serve', '--config', configFile]);
