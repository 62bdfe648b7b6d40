{
  "variables": {
    "include": ["<!(node -p \"require('node-addon-api').include_dir\")", "native"],
    "cxx": ["-std=c++20", "-O3", "-Wall", "-Wextra", "-Wno-psabi", "-fno-math-errno", "-fno-trapping-math"],
    "no_cxx": ["-fno-rtti", "-fno-exceptions", "-std=gnu++17", "-std=gnu++20"],
    # Without the last two, gcc moves the 16-bit sums behind all their products, which then do not fit 16 registers.
    "avx2": ["-mavx2", "-mfma", "-mf16c", "-fno-tree-ter", "-fno-tree-reassoc"],
    # gcc 12's intrinsics headers trip these two; our own code is checked without them in the other targets.
    "avx512": [
      "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni", "-mavx512vbmi", "-mavx512vbmi2",
      "-mavx512bitalg", "-mgfni", "-mavx2", "-mfma", "-mf16c", "-mprefer-vector-width=512",
      "-Wno-maybe-uninitialized", "-Wno-uninitialized"
    ]
  },
  "target_defaults": {
    "include_dirs": ["<@(include)"],
    "cflags_cc": ["<@(cxx)"],
    "cflags_cc!": ["<@(no_cxx)"],
    "xcode_settings": {
      "GCC_ENABLE_CPP_EXCEPTIONS": "YES",
      "CLANG_CXX_LANGUAGE_STANDARD": "c++20",
      "GCC_OPTIMIZATION_LEVEL": "3"
    }
  },
  "targets": [
    {
      "target_name": "ds4",
      "sources": ["<!@(node scripts/native-sources.mjs)"],
      "dependencies": ["isa_generic", "isa_avx2", "isa_avx512", "isa_neon", "quantize"],
      "defines": ["NAPI_VERSION=9", "NODE_ADDON_API_CPP_EXCEPTIONS", "NODE_ADDON_API_DISABLE_DEPRECATED"],
      "conditions": [["OS=='linux'", { "libraries": ["-lpthread"] }]]
    },
    {
      # Without fused multiply-adds, so that a file quantized on any machine has the same bytes.
      "target_name": "quantize",
      "type": "static_library",
      "sources": ["<!@(node scripts/native-sources.mjs quantize)"],
      "cflags_cc": ["-ffp-contract=off"],
      "xcode_settings": { "OTHER_CPLUSPLUSFLAGS": ["-ffp-contract=off"] }
    },
    {
      "target_name": "isa_generic",
      "type": "static_library",
      "sources": ["<!@(node scripts/native-sources.mjs isa generic)"]
    },
    {
      "target_name": "isa_avx2",
      "type": "static_library",
      "sources": ["<!@(node scripts/native-sources.mjs isa avx2)"],
      "conditions": [["target_arch=='x64'", { "cflags_cc": ["<@(avx2)"] }]]
    },
    {
      "target_name": "isa_avx512",
      "type": "static_library",
      "sources": ["<!@(node scripts/native-sources.mjs isa avx512)"],
      "conditions": [["target_arch=='x64'", { "cflags_cc": ["<@(avx512)"] }]]
    },
    {
      "target_name": "isa_neon",
      "type": "static_library",
      "sources": ["<!@(node scripts/native-sources.mjs isa neon)"],
      "conditions": [["target_arch=='arm64'", { "cflags_cc": ["-march=armv8.2-a+dotprod+fp16"] }]]
    }
  ]
}
