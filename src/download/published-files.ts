// The files that ds4 publishes, under its aliases. Sizes and hashes are those of the repository when this was written:
// a file that has been replaced since is refused instead of being taken for the old one.

/** One file to download. */
export interface PublishedFile {
  /** Of Hugging Face: owner/name. */
  repository: string;
  fileName: string;
  sizeBytes?: number;
  /** Hexadecimal. */
  sha256?: string;
}

/** What an alias stands for. */
export interface PublishedModel {
  alias: string;
  /** One line for people. */
  description: string;
  files: readonly PublishedFile[];
}

const V4 = "antirez/deepseek-v4-gguf";
const Q2 = "IQ2XXS-w2Q2K-AProjQ8-SExpQ8-OutQ8";
const Q2_Q4 = "Layers37-42Q4KExperts-OtherExpertLayersIQ2XXSGateUp-Q2KDown-AProjQ8-SExpQ8-OutQ8";
const PLAIN_F16 = "F16HC-F16Compressor-F16Indexer-Q8Attn-Q8Shared-Q8Out";

function v4(fileName: string, sizeBytes?: number, sha256?: string): PublishedFile {
  return { repository: V4, fileName: `DeepSeek-V4-${fileName}.gguf`, sizeBytes, sha256 };
}

const ENCODER = v4("Flash-Vision-Encoder", 932_857_760);

/** By alias, ds4's current names first, then the ones it has used before. */
export const PUBLISHED_MODELS: readonly PublishedModel[] = [
  {
    alias: "ds4f-q2",
    description: "V4 Flash 0731, experts in 2 bits; for 96 and 128 GB of memory",
    files: [
      v4(
        `Flash-${Q2}-chat-v2-imatrix-0731`,
        86_720_111_488,
        "ca22ae2f838e14077c22bc1c1417b71b45b5e5a3687bd96c2ac6e17fdb6261c0",
      ),
    ],
  },
  {
    alias: "ds4f-q2-q4",
    description: "V4 Flash 0731, experts in 2 bits, of the last 6 layers in 4; for 128 GB",
    files: [
      v4(
        `Flash-${Q2_Q4}-chat-v2-imatrix-fixed-0731`,
        97_591_747_456,
        "659e22fbd01c9e13ea37a57c8d9c41e0a8819dffa3473d3c5286ee44b2d3398f",
      ),
    ],
  },
  {
    alias: "ds4f-q4",
    description: "V4 Flash 0731, experts in 4 bits; for 256 GB",
    files: [
      v4(
        `Flash-Q4KExperts-${PLAIN_F16}-chat-v2-imatrix-0731`,
        164_633_502_592,
        "6bb77b5ddcbc2d974c687cfb63d644ecfb295581b4a53fa4c1d810aea538254a",
      ),
    ],
  },
  {
    alias: "ds4f-mxfp4",
    description: "V4 Flash 0731, experts as released (MXFP4); for 256 GB",
    files: [
      v4(
        `Flash-MXFP4Experts-${PLAIN_F16}-chat-v2-mxfp4-0731`,
        155_976_458_848,
        "0e3a161b670f686128ec5f92a601dfde616a37bf5e7e48999fa2d32471b57ec6",
      ),
    ],
  },
  {
    alias: "ds4f-dspark",
    description: "draft model for V4 Flash 0731; this engine does not use it",
    files: [
      v4(
        "Flash-DSpark-support-0731",
        5_989_114_272,
        "7e319924541db3f7a163ed7e11d7532a70d48228ab59d36cb81e1d4511885360",
      ),
    ],
  },
  {
    alias: "ds4f-vision-q2",
    description: "V4 Flash Vision-Exp in 2 bits and its encoder; this engine runs the text side",
    files: [v4(`Flash-Vision-Exp-${Q2}`, 86_720_111_776), ENCODER],
  },
  {
    alias: "ds4f-vision-q2-q4",
    description: "the same with the last 6 layers' experts in 4 bits",
    files: [v4(`Flash-Vision-Exp-${Q2_Q4}`), ENCODER],
  },
  {
    alias: "ds4f-vision-mxfp4",
    description: "the same with experts as released (MXFP4)",
    files: [v4(`Flash-Vision-Exp-MXFP4Experts-${PLAIN_F16}`), ENCODER],
  },
  { alias: "ds4f-vision-encoder", description: "the image encoder alone", files: [ENCODER] },
  {
    alias: "ds4f-vision-dspark",
    description: "draft model for Vision-Exp; this engine does not use it",
    files: [v4("Flash-Vision-Exp-DSpark-support", 5_989_114_528)],
  },
  {
    alias: "pro-q2-imatrix",
    description: "V4 Pro 0813, experts in 2 bits; for 512 GB",
    files: [v4(`Pro-${Q2}-Instruct-imatrix-0813`)],
  },
  {
    alias: "pro-q4-split",
    description: "V4 Pro in 4 bits, two files for two machines; this engine does not run them",
    files: [v4("Pro-Q4K-Layers00-30"), v4("Pro-Q4K-Layers-31-output")],
  },
  {
    alias: "q2-imatrix",
    description: "V4 Flash preview in 2 bits (May)",
    files: [v4(`Flash-${Q2}-chat-v2-imatrix`, 86_720_111_488)],
  },
  {
    alias: "q2-q4-imatrix",
    description: "V4 Flash preview, 2 bits and 4 in the last 6 layers (May)",
    files: [v4(`Flash-${Q2_Q4}-chat-v2-imatrix-fixed`, 97_591_747_456)],
  },
  {
    alias: "q4-imatrix",
    description: "V4 Flash preview in 4 bits (May)",
    files: [v4(`Flash-Q4KExperts-${PLAIN_F16}-chat-v2-imatrix`)],
  },
  {
    alias: "mtp",
    description: "draft block of the preview; this engine does not use it",
    files: [v4("Flash-MTP-Q4K-Q8_0-F32", 3_807_602_400)],
  },
];

/** Where Hugging Face serves a published file. */
export function publishedUrl({ repository, fileName }: PublishedFile): URL {
  return new URL(`https://huggingface.co/${repository}/resolve/main/${encodeURIComponent(fileName)}`);
}
