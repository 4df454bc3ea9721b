// What the system gives: randomness and hashes. Node 18 has them under another name.

import { GeoblanketError, InputError, RandomnessError } from "./errors.js";

const crypto = globalThis.crypto ?? (await import("node:crypto")).webcrypto;

/**
 * @param {Uint8Array} bytes
 * @returns {Promise<string>} SHA-256, hexadecimal
 */
export async function sha256(bytes) {
  if (!crypto.subtle) throw new GeoblanketError("Browsers hash on pages from https:// or this machine only.");
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", /** @type {BufferSource} */ (bytes)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @param {string} publicKey an Ed25519 key in PEM form
 * @param {Uint8Array} signature
 * @param {Uint8Array} message
 * @returns {Promise<boolean>} whether the signature is one of the message by this key
 */
export async function isSigned(publicKey, signature, message) {
  const text = /^-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*$/.exec(publicKey)?.[1];
  if (text === undefined) throw new InputError("The key is not an Ed25519 public key in PEM form.");
  let key;
  try {
    const bytes = Uint8Array.from(atob(text.replace(/\s/g, "")), (character) => character.charCodeAt(0));
    key = await crypto.subtle.importKey("spki", bytes, "Ed25519", false, ["verify"]);
  } catch {
    throw new InputError("The key is not an Ed25519 public key in PEM form, or this system cannot check signatures.");
  }
  return crypto.subtle.verify("Ed25519", key, signature, message);
}

/** @param {string} text @returns {Promise<string>} SHA-256 of its UTF-8, hexadecimal */
export function sha256OfText(text) {
  return sha256(new TextEncoder().encode(text));
}

/** @returns {bigint} 62 random bits */
export function systemWord() {
  const octets = new Uint8Array(8);
  try {
    crypto.getRandomValues(octets);
  } catch {
    throw new RandomnessError("The system gives no randomness. Nothing was drawn.");
  }
  return new DataView(octets.buffer).getBigUint64(0, true) >> 2n;
}

/** @returns {string} 128 random bits, hexadecimal */
export function randomName() {
  const octets = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(octets, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
