// Checks of `proxy` and `tls` across their fields: a certificate and its key, and fields that have no effect.
import {
  certificatesIn,
  EXPIRY_MARGIN_MS,
  readCertificates,
  readPrivateKeyPem,
  tlsFault,
} from '../schema/pem.ts';
import { proxyRules } from '../source/outbound-rules.ts';
import {
  findNode,
  isGiven,
  nodeText,
  type ReportFault,
  type YamlMapping,
  type YamlNode,
  type YamlPath,
} from '../source/yaml-tree.ts';

/** The global fields, and the variables of the environment that stand in for `proxy`. */
export function checkOutbound(
  tree: YamlMapping,
  env: NodeJS.ProcessEnv,
  fault: ReportFault,
  warn: ReportFault,
): void {
  checkTls(tree, [], fault, warn);
  const proxy = nodeText(tree, 'proxy');
  const rules = proxyRules(proxy === '' ? undefined : proxy, env);
  if (!rules.ok) fault(findNode(tree, ['proxy'])?.node.span.start ?? 0, ['proxy'], rules.fault);
}

/** @param holder the file, or the mapping of an upstream at `path` */
export function checkTls(holder: YamlNode, path: YamlPath, fault: ReportFault, warn: ReportFault): void {
  const tls = findNode(holder, ['tls']);
  if (tls?.key === undefined || tls.node.kind !== 'branch') return;
  const { entries } = tls.node;
  const at = tls.key.start;
  const inTls = [...path, 'tls'];
  const given = (field: string) => isGiven(entries.get(field)?.value);
  if (given('cert') !== given('key')) {
    fault(at, inTls, 'needs `cert` and `key` together');
    return;
  }
  const [ca, cert, key] = ['ca', 'cert', 'key'].map((field) => nodeText(tls.node, field) || undefined);
  // What is wrong with one value by itself is reported elsewhere.
  const areReadable = [ca, cert].every((pem) => pem === undefined || readCertificates(pem).ok);
  if (!areReadable || (key !== undefined && !readPrivateKeyPem(key).ok)) return;
  const found = tlsFault({
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  });
  if (found !== undefined) fault(at, inTls, found);
  const end = certificatesIn(cert ?? '')[0]?.validToDate;
  if (end !== undefined && end.getTime() - Date.now() < EXPIRY_MARGIN_MS) {
    const verb = end.getTime() < Date.now() ? 'expired' : 'expires';
    warn(at, [...inTls, 'cert'], `${verb} at ${end.toISOString()}; upstreams that ask for it reject it then`);
  }
  const base = nodeText(holder, 'base_url');
  if (base !== undefined && /^http:/i.test(base)) warn(at, inTls, 'has no effect on an http URL');
}
