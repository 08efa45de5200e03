//! The CustomResourceDefinitions of the three kinds.
