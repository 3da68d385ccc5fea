// Checks of `proxy` and `tls` across their fields: a certificate and its key, and fields that have no effect.
import {
  certificatesIn,
  EXPIRY_MARGIN_MS,
  readCertificates,
  readPrivateKeyPem,
  tlsFault,
} from '../schema/pem.ts';
import { proxyRules } from '../source/outbound-rules.ts';
import type { ConfigField } from './config-field.ts';

/** The global fields, and the variables of the environment that stand in for `proxy`. */
export function checkOutbound(file: ConfigField, env: NodeJS.ProcessEnv): void {
  checkTls(file);
  const proxy = file.at('proxy');
  const rules = proxyRules(proxy.text === '' ? undefined : proxy.text, env);
  if (!rules.ok) proxy.fault(rules.fault);
}

/** @param holder the file, or one upstream */
export function checkTls(holder: ConfigField): void {
  const tls = holder.at('tls');
  if (tls.node?.kind !== 'branch') return;
  if (tls.at('cert').isGiven !== tls.at('key').isGiven) {
    tls.key.fault('needs `cert` and `key` together');
    return;
  }
  const [ca, cert, key] = ['ca', 'cert', 'key'].map((field) => tls.at(field).text || undefined);
  // What is wrong with one value by itself is reported elsewhere.
  const areReadable = [ca, cert].every((pem) => pem === undefined || readCertificates(pem).ok);
  if (!areReadable || (key !== undefined && !readPrivateKeyPem(key).ok)) return;
  const found = tlsFault({ ca, cert, key });
  if (found !== undefined) tls.key.fault(found);
  const end = certificatesIn(cert ?? '')[0]?.validToDate;
  if (end !== undefined && end.getTime() - Date.now() < EXPIRY_MARGIN_MS) {
    const verb = end.getTime() < Date.now() ? 'expired' : 'expires';
    tls.key.warn(`${verb} at ${end.toISOString()}; upstreams that ask for it reject it then`, 'cert');
  }
  if (/^http:/i.test(holder.at('base_url').text ?? '')) tls.key.warn('has no effect on an http URL');
}
