// Preloaded into a client program: packages that the program imports come from the folder of installed versions, under
// the names that they have there.
import { registerHooks } from 'node:module';
import { pathToFileURL } from 'node:url';

const folder = process.env['PACKAGES'];
if (folder === undefined) throw new Error('PACKAGES is not set');
const parentURL = pathToFileURL(`${folder}/program.js`).href;
/** Package → the name that its version is installed under. */
const aliases: Readonly<Record<string, string>> = JSON.parse(process.env['ALIASES'] ?? '{}');
const programs = new URL('.', import.meta.url).href;

registerHooks({
  resolve: (specifier, context, next) => {
    const isPackage = !/^(?:\.|\/|node:|file:)/.test(specifier);
    if (!isPackage || context.parentURL?.startsWith(programs) !== true) return next(specifier, context);
    const [, name = specifier, path = ''] = /^(@[^/]+\/[^/]+|[^/]+)(.*)$/.exec(specifier) ?? [];
    return next((aliases[name] ?? name) + path, { ...context, parentURL });
  },
});
