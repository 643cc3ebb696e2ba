// Makes a container in Azurite and puts all files of a folder into it: node azurite_put.js PORT CONTAINER FOLDER.
// Requests are signed with the key that all emulators have, as Azure documents it ("Authorize with Shared Key").
"use strict";
const crypto = require("crypto");
const fs = require("fs");
const http = require("http");
const path = require("path");

const ACCOUNT = "devstoreaccount1";
const KEY = Buffer.from(
  "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
  "base64",
);
const [port, container, folder] = process.argv.slice(2);

function put(name, query, body, more) {
  const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2021-08-06", ...more };
  const canonical = Object.keys(headers).sort().map((key) => `${key}:${headers[key]}\n`).join("");
  const resource = `/${ACCOUNT}/${ACCOUNT}/${name}` + query.map(([key, value]) => `\n${key}:${value}`).join("");
  const text = `PUT\n\n\n${body.length || ""}\n\n\n\n\n\n\n\n\n${canonical}${resource}`;
  const signature = crypto.createHmac("sha256", KEY).update(text, "utf8").digest("base64");
  const target = `/${ACCOUNT}/${name}` + (query.length ? "?" + query.map((pair) => pair.join("=")).join("&") : "");
  const options = { host: "127.0.0.1", port, method: "PUT", path: target };
  options.headers = { ...headers, authorization: `SharedKey ${ACCOUNT}:${signature}`, "content-length": body.length };
  return new Promise((resolve, reject) => {
    const request = http.request(options, (answer) => {
      let said = "";
      answer.on("data", (piece) => (said += piece));
      answer.on("end", () => {
        if (answer.statusCode === 201) resolve();
        else reject(new Error(`${name}: ${answer.statusCode} ${said}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function main() {
  await put(container, [["restype", "container"]], Buffer.alloc(0), {});
  for (const entry of fs.readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = path.join(entry.parentPath ?? entry.path, entry.name);
    const name = path.relative(folder, file).split(path.sep).map(encodeURIComponent).join("/");
    await put(`${container}/${name}`, [], fs.readFileSync(file), { "x-ms-blob-type": "BlockBlob" });
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
