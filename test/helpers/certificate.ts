// Makes certificates for TLS tests, self-signed ones and chains, good ones and bad ones, so that no private key lies in the repository.
import { createPrivateKey, generateKeyPairSync, type KeyObject, randomUUID, sign } from 'node:crypto';

export interface CertificateInput {
  /** Names it is good for: host names, or addresses. Default `localhost` and `127.0.0.1`. */
  readonly names?: readonly string[];
  readonly notBefore?: Date;
  readonly notAfter?: Date;
  /** Its own name (CN). Default: one of its own, by which authorities of one list are told apart. */
  readonly subject?: string;
  /** Who signs it. Default: itself. */
  readonly issuer?: { readonly key: string; readonly subject: string };
}

const DAY = 86_400_000;

/** A key and a certificate for it in PEM. Give the certificate itself as the authority to trust it. */
export function makeCertificate(input: CertificateInput = {}): { key: string; cert: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { subject = `test ${randomUUID()}`, issuer } = input;
  const der = certificate(issuer === undefined ? privateKey : createPrivateKey(issuer.key), publicKey, {
    subject: nameOf(subject),
    issuer: nameOf(issuer?.subject ?? subject),
    names: input.names ?? ['localhost', '127.0.0.1'],
    notBefore: input.notBefore ?? new Date(Date.now() - DAY),
    notAfter: input.notAfter ?? new Date(Date.now() + DAY),
  });
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`,
  };
}

// X.509 version 3 (RFC 5280, 4.1) in DER: each value is a tag, a length and its content.
const ECDSA_SHA256 = seq(oid([0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]));

interface Contents extends Required<Pick<CertificateInput, 'names' | 'notBefore' | 'notAfter'>> {
  readonly subject: Buffer;
  readonly issuer: Buffer;
}

function certificate(signer: KeyObject, publicKey: KeyObject, input: Contents): Buffer {
  const altNames = seq(...input.names.map(generalName));
  const extensions = seq(
    seq(oid([0x55, 0x1d, 0x11]), tlv(0x04, altNames)),
    // basicConstraints CA:TRUE, so that it can be its own authority.
    seq(oid([0x55, 0x1d, 0x13]), tlv(0x01, Buffer.of(0xff)), tlv(0x04, seq(tlv(0x01, Buffer.of(0xff))))),
  );
  const body = seq(
    tlv(0xa0, tlv(0x02, Buffer.of(2))),
    tlv(0x02, Buffer.of(1)),
    ECDSA_SHA256,
    input.issuer,
    seq(time(input.notBefore), time(input.notAfter)),
    input.subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    tlv(0xa3, extensions),
  );
  const signature = sign('sha256', body, signer);
  return seq(body, ECDSA_SHA256, tlv(0x03, Buffer.concat([Buffer.of(0), signature])));
}

function nameOf(commonName: string): Buffer {
  return seq(tlv(0x31, seq(oid([0x55, 0x04, 0x03]), tlv(0x0c, Buffer.from(commonName)))));
}

function generalName(name: string): Buffer {
  return /^\d+\.\d+\.\d+\.\d+$/.test(name)
    ? tlv(0x87, Buffer.from(name.split('.').map(Number)))
    : tlv(0x82, Buffer.from(name, 'ascii'));
}

function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/[-:T]/g, '').slice(0, 14);
  return tlv(0x18, Buffer.from(`${digits}Z`, 'ascii'));
}

function seq(...parts: Buffer[]): Buffer {
  return tlv(0x30, Buffer.concat(parts));
}

function oid(bytes: readonly number[]): Buffer {
  return tlv(0x06, Buffer.from(bytes));
}

function tlv(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.of(tag, ...size), content]);
}
