{
  "targets": [
    {
      "target_name": "ds4",
      "sources": ["<!@(node scripts/native-sources.mjs)"],
      "include_dirs": ["<!(node -p \"require('node-addon-api').include_dir\")", "native"],
      "defines": ["NAPI_VERSION=9", "NODE_ADDON_API_CPP_EXCEPTIONS", "NODE_ADDON_API_DISABLE_DEPRECATED"],
      "cflags_cc": ["-std=c++20", "-O3", "-Wall", "-Wextra", "-fno-math-errno"],
      "cflags_cc!": ["-fno-rtti", "-fno-exceptions", "-std=gnu++17", "-std=gnu++20"],
      "xcode_settings": {
        "GCC_ENABLE_CPP_EXCEPTIONS": "YES",
        "CLANG_CXX_LANGUAGE_STANDARD": "c++20",
        "GCC_OPTIMIZATION_LEVEL": "3"
      },
      "conditions": [["OS=='linux'", { "libraries": ["-lpthread"] }]]
    }
  ]
}
