//! The files of the workspace, read into memory.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// A text file. `path` is relative to the workspace root, with forward slashes.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    pub(crate) fn is_markdown(&self) -> bool {
        self.has_extension("md")
    }

    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Returns the lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(&self.text)
    }

    /// Returns the folder of the crate that the file is in, and the file's path inside that folder.
    pub(crate) fn in_crate(&self) -> Option<(&str, &str)> {
        self.path.strip_prefix("crates/")?.split_once('/')
    }
}

/// Returns the lines of `text` with their numbers, from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split('\n').enumerate().map(|(i, line)| (i + 1, line))
}

/// Every text file of the workspace, sorted by path. Build output, hidden folders other than `.ci` and `.cargo`, and
/// files that are not UTF-8 text are left out.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && is_ours(&name) {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
                && !text.contains('\0')
            {
                self.files.push(File { path, text });
            }
        }
        Ok(())
    }

    /// Returns the manifests of the crates, as folder name and file.
    pub(crate) fn crate_manifests(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().filter_map(|file| match file.in_crate() {
            Some((folder, "Cargo.toml")) => Some((folder, file)),
            _ => None,
        })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        Tree { files: files.iter().map(file).collect() }
    }
}

fn is_ours(folder: &str) -> bool {
    folder != "target" && (!folder.starts_with('.') || [".ci", ".cargo"].contains(&folder))
}

/// Returns the root of the workspace. Cargo tells a program that it runs where its crate is; without cargo it is the
/// current folder.
pub(crate) fn workspace_root() -> PathBuf {
    match env::var_os("CARGO_MANIFEST_DIR") {
        Some(crate_folder) => Path::new(&crate_folder).join("../.."),
        None => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_this_file_and_no_build_output() {
        let tree = Tree::read(&workspace_root()).unwrap();
        assert!(tree.files.iter().any(|file| file.path == "crates/xtask/src/tree.rs"));
        assert!(tree.crate_manifests().any(|(folder, _)| folder == "xtask"));
        assert!(
            !tree.files.iter().any(|file| file.path.starts_with("target/") || file.path.contains(".git/"))
        );
    }
}
