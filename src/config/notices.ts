// What the schema accepts and this version does not do yet, one line each. A line goes when its part arrives; then
// `node src/config/reference.ts docs/configuration.md` tells the docs.
import { find, type Mark, type Tree } from './tree.ts';

/** Fields with which the gateway would behave otherwise than the file says. */
export const NOTICES: readonly string[] = ['billing'];

/** @param tree the whole file */
export function unsupported(tree: Tree): readonly Mark[] {
  return NOTICES.flatMap((field) => {
    const found = find(tree, [field]);
    if (found === undefined || found.node.kind === 'blank') return [];
    const { node, key = node.span } = found;
    if (node.kind === 'leaf' && (node.emptied || node.broken)) return [];
    return [{ at: key.start, path: [field], message: 'is not supported by this version' }];
  });
}
